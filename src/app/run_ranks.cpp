#include "app/run_ranks.h"

#include <fmt/format.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "base/strings.h"
#include "comm/in_process.h"

namespace ingot::app {

namespace {

// Its threads cannot be ended from outside, and nothing is half-done: files are published by rename.
void end_process(const Error& error) {
  Log(LogLevel::info).error("{}; another rank does not end and is given up", error.message());
  _exit(exit_code(error.kind()));
}

std::vector<std::string> names_in(const std::string& list) {
  std::vector<std::string> names;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    names.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return names;
}

bool of_one_machine(const std::string& device) { return device == "cpu" || device == "sim32" || device == "sim64"; }

std::string device_of(const std::string& device, const comm::Group& world) {
  const std::vector<std::string> names = names_in(device);
  if (names.size() == 1 && of_one_machine(device)) return device;
  if (names.size() == 1 && (device == "cuda" || device == "hip")) return fmt::format("{}:{}", device, world.rank());
  if (std::ssize(names) != world.size()) {
    throw_hint(ErrorKind::usage, "name one for each rank (device: \"cuda:0,cuda:1\"), or a kind: cpu, cuda, hip",
               "device '{}' is {} for {} ranks", device, names.size(), world.size());
  }
  return names[static_cast<size_t>(world.rank())];
}

}  // namespace

int run_ranks(const train::ParallelRecipe& parallel, FunctionRef<int(const comm::Group&)> run) {
  int code = 0;
  const comm::InProcess settings{.ranks = static_cast<int>(parallel.dp),
                                 .timeout_s = static_cast<double>(parallel.timeout_s),
                                 .stuck = end_process};
  comm::run_in_process(settings, [&](const comm::Group& world) {
    const int own = run(world);
    if (world.rank() == 0) code = own;
  });
  return code;
}

Runtime open_rank_runtime(const std::string& device, std::optional<int64_t> threads, const comm::Group& world) {
  if (world.size() == 1) return open_runtime(device, threads);
  const int64_t all = threads.value_or(available_cpus());
  if (threads && all < world.size()) {
    throw_hint(ErrorKind::usage, "set threads to at least the number of ranks", "{} threads for {} ranks", all,
               world.size());
  }
  const int64_t own = std::max<int64_t>(1, all / world.size());
  if (device != "auto") return open_runtime(device_of(device, world), own);
  Runtime runtime = open_runtime(device, own);
  const DeviceKind kind = runtime.device->kind();
  if (kind == DeviceKind::cpu || world.rank() == 0) return runtime;
  return open_runtime(fmt::format("{}:{}", name(kind), world.rank()), own);
}

}  // namespace ingot::app
