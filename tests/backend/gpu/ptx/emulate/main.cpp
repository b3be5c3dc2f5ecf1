// emulate_ptx LAUNCHES PTX KERNEL...: runs the PTX of each kernel on its launch in the folder LAUNCHES, made by
// record_launches with 32 lanes, and prints a line for each: name, state, detail (tabs). States: "agrees" with the
// memory that the simulation left, "DIFFERS", which is also a fault of the kernel, and "not emulated".
// tools/emulate_ptx.py calls it.
#include <fmt/format.h>

#include <iostream>

#include "base/error.h"
#include "base/file.h"
#include "tests/backend/gpu/ptx/recording.h"

namespace ingot::ptx {
namespace {

std::string verdict(const Module& module, const std::filesystem::path& launches, const std::string& name) {
  try {
    const Recording recording = read_recording(launches, name);
    const Kernel kernel(module, name);
    std::vector<Allocation> allocations;
    for (const Region& region : recording.regions) allocations.push_back(region.place);
    GlobalMemory memory(recording.base, recording.before, allocations);
    run(kernel, recording.shape, recording.parameters, memory);
    const Difference difference = compare(recording, memory.contents());
    if (difference.same) return "agrees\tsame bits";
    return fmt::format("{}\terror {:.2g}", difference.within ? "agrees" : "DIFFERS", difference.error);
  } catch (const Error& error) {
    return fmt::format("{}\t{}", error.kind() == ErrorKind::unsupported ? "not emulated" : "DIFFERS", text_of(error));
  }
}

void emulate(const std::filesystem::path& launches, const std::filesystem::path& ptx,
             const std::vector<std::string>& kernels) {
  const std::string text = read_file(ptx);
  const Module module = parse(text);
  for (const std::string& kernel : kernels) {
    std::cout << kernel << '\t' << verdict(module, launches, kernel) << std::endl;
  }
}

}  // namespace
}  // namespace ingot::ptx

int main(int count, char** values) {
  if (count < 4) {
    std::cerr << "usage: emulate_ptx LAUNCHES PTX KERNEL...\n";
    return 2;
  }
  try {
    ingot::ptx::emulate(values[1], values[2], {values + 3, values + count});
  } catch (const std::exception& error) {
    std::cerr << ingot::text_of(error) << '\n';
    return 1;
  }
  return 0;
}
