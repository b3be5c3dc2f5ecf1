// emulate_op_table CODE SUFFIX OPS: runs the op table's cases of the ops that match the regular expression OPS on the
// simulated device of 32 lanes, and after each launch the kernel's PTX, CODE/STEM.SUFFIX, on the memory from before it.
// Prints a line for each kernel: source, name, launches, states as emulate_ptx has them, the largest error, and the
// share of its instructions that were executed. tools/emulate_ptx.py calls it.
#include <fmt/format.h>

#include <filesystem>
#include <iostream>
#include <map>
#include <memory>

#include "base/error.h"
#include "base/file.h"
#include "tests/backend/gpu/ptx/recording.h"
#include "tests/backend/gpu/record/recording_device.h"

namespace ingot::ptx {
namespace {

// A source's PTX.
struct Code {
  explicit Code(const std::filesystem::path& path) : text(read_file(path)), module(parse(text)) {}
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
  std::string text;
  Module module;
};

struct Tested {
  std::string source;
  std::unique_ptr<Kernel> kernel;  // null if it cannot be emulated
  std::vector<uint8_t> executed;
  std::string state = "agrees", detail = "same bits";
  double error = 0;
  int launches = 0;
};

class OpTableTest {
 public:
  OpTableTest(std::filesystem::path folder, std::string suffix)
      : folder_(std::move(folder)), suffix_(std::move(suffix)) {}

  void test(RecordedLaunch&& launch) {
    Tested& tested = tested_of(launch);
    ++tested.launches;
    if (tested.kernel == nullptr || tested.state == "DIFFERS") return;
    const std::string op_case = fmt::format("{}: {}", launch.op, launch.op_case);
    try {
      Recording recording;
      recording.base = recorded_base;
      std::vector<Allocation> allocations;
      for (const RecordedRegion& region : launch.regions) {
        allocations.push_back({region.address, region.bytes});
        recording.regions.push_back({allocations.back(), region.type, region.tolerance});
      }
      recording.after = std::move(launch.after);
      GlobalMemory memory(recorded_base, std::move(launch.before), std::move(allocations));
      run(*tested.kernel, {launch.grid.x, launch.grid.y, launch.threads, launch.dynamic_shared_bytes}, launch.args,
          memory, &tested.executed);
      const Difference difference = compare(recording, memory.contents());
      if (difference.same) return;
      if (difference.error > tested.error || !difference.within)
        tested.detail = fmt::format("{:.2g} of {}", difference.error, op_case);
      tested.error = std::max(tested.error, difference.error);
      if (!difference.within) tested.state = "DIFFERS";
    } catch (const Error& error) {
      tested.state = error.kind() == ErrorKind::unsupported ? "not emulated" : "DIFFERS";
      tested.detail = fmt::format("{} of {}", text_of(error), op_case);
    }
  }

  void print() const {
    for (const auto& [name, tested] : tested_) {
      size_t executed = 0;
      for (const uint8_t once : tested.executed) executed += once;
      const double share =
          tested.executed.empty() ? 0.0 : static_cast<double>(executed) / static_cast<double>(tested.executed.size());
      std::cout << fmt::format("{}\t{}\t{}\t{}\t{}\t{:.3f}\n", tested.source, name, tested.launches, tested.state,
                               tested.detail, share);
    }
  }

 private:
  Tested& tested_of(const RecordedLaunch& launch) {
    const auto [at, added] = tested_.try_emplace(launch.kernel);
    Tested& tested = at->second;
    if (!added) return tested;
    tested.source = launch.source;
    try {
      std::unique_ptr<Code>& code = code_[launch.source];
      const std::string stem = launch.source.substr(0, launch.source.find('.'));
      if (code == nullptr) code = std::make_unique<Code>(folder_ / (stem + "." + suffix_));
      tested.kernel = std::make_unique<Kernel>(code->module, launch.kernel);
      tested.executed.resize(tested.kernel->instructions().size());
    } catch (const Error& error) {
      tested.state = "not emulated";
      tested.detail = text_of(error);
    }
    return tested;
  }

  std::filesystem::path folder_;
  std::string suffix_;
  std::map<std::string, std::unique_ptr<Code>> code_;
  std::map<std::string, Tested> tested_;
};

}  // namespace
}  // namespace ingot::ptx

int main(int count, char** values) {
  if (count != 4) {
    std::cerr << "usage: emulate_op_table CODE SUFFIX OPS\n";
    return 2;
  }
  try {
    ingot::ptx::OpTableTest test(values[1], values[2]);
    ingot::RecordingDevice device(32, [&](ingot::RecordedLaunch&& launch) { test.test(std::move(launch)); });
    device.run_op_table(values[3]);
    test.print();
  } catch (const std::exception& error) {
    std::cerr << ingot::text_of(error) << '\n';
    return 1;
  }
  return 0;
}
