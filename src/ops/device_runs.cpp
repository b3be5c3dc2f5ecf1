#include "ops/device_runs.h"

#include "base/tab_separated.h"

namespace ingot::ops {

std::vector<DeviceRun> device_runs(std::string_view table) {
  std::vector<DeviceRun> runs;
  for (const std::vector<std::string>& line : tab_separated_lines(table, 5)) {
    runs.push_back({line[0], line[1], line[2], line[3], line[4]});
  }
  return runs;
}

}  // namespace ingot::ops
