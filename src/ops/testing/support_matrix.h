// The page docs/support-matrix.md: which ops work where. Generated from the op registry, the op table, and the
// committed tables of compiled, emulated and executed kernels.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ops/registry.h"

namespace ingot::ops::testing {

// Texts of the tables. Fields are separated by tabs; lines that begin with # are comments, and the first other line has
// column names.
struct SupportTables {
  std::string device_code;  // tools/device_code.tsv: source, kernel, target, ...
  std::string
      emulated_kernels;     // tools/emulated_kernels.tsv: source, kernel, target, ops (commas), case, state, detail
  std::string device_runs;  // bench/reports/device_runs.tsv (ops/device_runs.h)
};

// Returns the page: one row per op and device with its implementations in order of preference and the tested types;
// then one row per op with the test status of its GPU kernels.
std::string support_matrix(const ops::Registry& registry, const SupportTables& tables);

}  // namespace ingot::ops::testing
