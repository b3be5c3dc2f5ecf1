// In the log: which calls the libraries of a GPU's vendor decline.
#pragma once

#include "base/log.h"
#include "tensor/device.h"

namespace ingot::runtime {

// Logs each such call once per shape, with the reason, as ops run on the device; nothing on a CPU. The log outlives the
// ops.
void log_refusals(Device& device, const Log& log);

}  // namespace ingot::runtime
