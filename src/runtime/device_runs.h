// bench/reports/device_runs.tsv, embedded in the executable (by src/runtime/CMakeLists.txt).
#pragma once

namespace ingot::runtime {

extern const char* const device_runs_table;

}  // namespace ingot::runtime
