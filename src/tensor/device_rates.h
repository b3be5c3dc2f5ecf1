// Rates to which the speed of a computation is related.
#pragma once

#include <string>

namespace ingot {

// FLOP/s of a device; 0 when unknown.
struct DeviceRates {
  double peak = 0;        // of the precision's gemms: measured on a CPU, from the datasheet on a GPU
  double gemm = 0;        // what this program's gemms reach
  std::string date = {};  // when a CPU's were measured (UTC); empty for a GPU's
};

}  // namespace ingot
