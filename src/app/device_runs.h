// bench/reports/device_runs.tsv, embedded in the executable (by src/app/CMakeLists.txt).
#pragma once

namespace ingot::app {

extern const char* const device_runs_table;

}  // namespace ingot::app
