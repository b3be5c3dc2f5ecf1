// GPUs of a vendor's driver.
#pragma once

#include <memory>

#include "backend/gpu/gpu_device.h"
#include "backend/gpu/runtime/driver.h"

namespace ingot::gpu {

// Device `index` of the driver. ErrorKind::unavailable when there is no such device, or when this build has no code for
// it.
std::unique_ptr<GpuDevice> make_device(std::shared_ptr<Driver> driver, int index);

}  // namespace ingot::gpu
