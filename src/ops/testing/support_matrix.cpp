#include "ops/testing/support_matrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "base/strings.h"
#include "base/tab_separated.h"
#include "ops/device_runs.h"
#include "ops/testing/op_table.h"

namespace ingot::ops::testing {
namespace {

std::vector<std::string> types_of(const std::string& op) {
  std::set<std::string> types;
  for (const OpCase& op_case : op_cases()) {
    if (op_case.op != op) continue;
    for (const Operand& operand : op_case.operands) {
      types.insert(operand.storage ? name(*operand.storage) : name(operand.dtype));
    }
  }
  return {types.begin(), types.end()};
}

using Kernel = std::pair<std::string, std::string>;  // source, name

// Test status of the GPU kernels, by kernel and op.
struct Known {
  std::vector<std::string> targets;  // in the order of the device-code table
  std::map<Kernel, std::set<std::string>> compiled;
  std::set<std::string> emulators;                              // targets with an emulator
  std::map<Kernel, std::set<std::string>> emulated;             // targets with a correct result
  std::map<std::string, std::set<Kernel>> kernels;              // by op
  std::map<std::string, std::map<std::string, DeviceRun>> ran;  // by op and architecture, the latest run
};

Known read(const SupportTables& tables) {
  Known known;
  for (const std::vector<std::string>& line : tab_separated_lines(tables.device_code, 3)) {
    known.compiled[{line[0], line[1]}].insert(line[2]);
    if (std::find(known.targets.begin(), known.targets.end(), line[2]) == known.targets.end()) {
      known.targets.push_back(line[2]);
    }
  }
  for (const std::vector<std::string>& line : tab_separated_lines(tables.emulated_kernels, 7)) {
    const Kernel kernel{line[0], line[1]};
    for (const std::string& op : split(line[3], ',')) known.kernels[op].insert(kernel);
    known.emulators.insert(line[2]);
    if (line[5] == "agrees") known.emulated[kernel].insert(line[2]);
  }
  for (const DeviceRun& run : device_runs(tables.device_runs)) known.ran[run.op][run.architecture] = run;
  return known;
}

// "gfx942 3 of 4" for each target, or only the target's name if all kernels are done for it.
std::string share_of(const std::set<Kernel>& kernels, const std::vector<std::string>& targets,
                     const std::map<Kernel, std::set<std::string>>& done) {
  std::vector<std::string> parts;
  for (const std::string& target : targets) {
    const auto count = std::count_if(kernels.begin(), kernels.end(), [&](const Kernel& kernel) {
      const auto at = done.find(kernel);
      return at != done.end() && at->second.contains(target);
    });
    if (static_cast<size_t>(count) == kernels.size()) {
      parts.push_back(target);
    } else if (count > 0) {
      parts.push_back(fmt::format("{} {} of {}", target, count, kernels.size()));
    }
  }
  return parts.empty() ? "none" : fmt::format("{}", fmt::join(parts, ", "));
}

std::string gpu_row(const std::string& op, const Known& known) {
  const auto at = known.kernels.find(op);
  const std::set<Kernel> kernels = at != known.kernels.end() ? at->second : std::set<Kernel>();
  std::vector<std::string> runs;
  if (const auto ran = known.ran.find(op); ran != known.ran.end()) {
    for (const auto& [architecture, run] : ran->second) {
      runs.push_back(fmt::format("{} ({}, {})", architecture, run.date, run.commit));
    }
  }
  const std::string compiled = kernels.empty() ? "not listed yet" : share_of(kernels, known.targets, known.compiled);
  std::vector<std::string> emulators;
  std::copy_if(known.targets.begin(), known.targets.end(), std::back_inserter(emulators),
               [&](const std::string& target) { return known.emulators.contains(target); });
  const std::string emulated = kernels.empty() ? "not listed yet" : share_of(kernels, emulators, known.emulated);
  return fmt::format("| {} | {} | {} | sim32, sim64 | {} | {} |\n", op, kernels.size(), compiled, emulated,
                     runs.empty() ? "never" : fmt::format("{}", fmt::join(runs, ", ")));
}

}  // namespace

std::string support_matrix(const ops::Registry& registry, const SupportTables& tables) {
  std::string text = R"(# Support matrix

Made from the op registry, the op table (`src/ops/testing/`) and committed tables; a test checks that it is current.
Implementations are in order of preference: the first one that does not decline a call runs. `INGOT_OPS=op=implementation`
picks one; `INGOT_CPU_ISA` (`amx`, `avx512_fma`, `avx512`, `avx2`, `plain`) keeps the CPU to instructions up to that level. Types are those that the op's tests cover. Rows of `sim` are the GPUs': `cuda` and `hip` have the same kernels, but `sm90` of attention, which runs on CUDA devices of compute capability 9.0 alone and comes before `mma` there.

| op | device | implementations | types |
|---|---|---|---|
)";
  std::vector<std::string> on_gpus;
  for (const ops::Registry::Listing& listing : registry.listings()) {
    text += fmt::format("| {} | {} | {} | {} |\n", listing.op, name(listing.device),
                        fmt::join(listing.implementations, ", "), fmt::join(types_of(listing.op), ", "));
    if (listing.device == DeviceKind::sim) on_gpus.push_back(listing.op);
  }
  const Known known = read(tables);
  text += R"(
## GPU kernels, by target

- compiled: registers, spills, memory and matrix-core instructions of every kernel are in `tools/device_code.tsv`, which CI
  compares with what it compiles (`./run device-code`);
- simulated: every test run has the op's cases on simulated GPUs with 32 and with 64 lanes, each under two schedules;
- emulated: one launch of the kernel's code in an emulator leaves the memory that the simulation leaves: NVIDIA's PTX in ours
  (`tools/emulate_ptx.py`, in CI), AMD's machine code in tinygrad's (`tools/emulate_amd.py`, by hand). Errors, and why an
  emulator cannot take a kernel, are in `tools/emulated_kernels.tsv`; kernels that are not there yet are not counted here;
- run on a device: architectures with date and commit, from `bench/reports/device_runs.tsv`.

| op | kernels | compiled | simulated | emulated | run on a device |
|---|---|---|---|---|---|
)";
  for (const std::string& op : on_gpus) text += gpu_row(op, known);
  return text;
}

}  // namespace ingot::ops::testing
