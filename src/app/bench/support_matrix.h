// What the project knows to work: the page docs/support-matrix.md, made from the op registry, the op table, and the
// committed tables of what was compiled, emulated and run.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ops/registry.h"

namespace ingot::bench {

// The tables' texts: lines of fields between tabs, lines with # and then one line of names first.
struct SupportTables {
  std::string device_code;  // tools/device_code.tsv: source, kernel, target, ...
  std::string
      emulated_kernels;     // tools/emulated_kernels.tsv: source, kernel, target, ops (commas), case, state, detail
  std::string device_runs;  // bench/reports/device_runs.tsv, see below
};

// A line of bench/reports/device_runs.tsv: on a device of this architecture ("sm_90", "gfx942") the op's cases passed.
struct DeviceRun {
  std::string architecture, op, date, commit, report;
};
std::vector<DeviceRun> device_runs(std::string_view table);

// The page: a row an op and device with its implementations in order of preference and the types it is tried with; then
// a row an op with what was done with its GPU kernels.
std::string support_matrix(const ops::Registry& registry, const SupportTables& tables);

}  // namespace ingot::bench
