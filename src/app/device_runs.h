// bench/reports/device_runs.tsv, in the executable (made by src/app/CMakeLists.txt).
#pragma once

namespace ingot::app {

extern const char* const device_runs_table;

}  // namespace ingot::app
