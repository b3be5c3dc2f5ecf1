// Which ops have run on which devices, as the table bench/reports/device_runs.tsv says.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ingot::ops {

// A line of the table: the op's cases passed on a device of this architecture ("sm_90", "gfx942").
struct DeviceRun {
  std::string architecture, op, date, commit, report;
};

// Errors: those of tab_separated_lines.
std::vector<DeviceRun> device_runs(std::string_view table);

}  // namespace ingot::ops
