// The simulated GPUs: host memory that only copies reach, and kernels run by the executor. Slow; never chosen by
// itself.
#pragma once

#include <memory>

#include "backend/gpu/gpu_device.h"
#include "backend/gpu/sim/executor.h"

namespace ingot::gpu::sim {

// `width` 32 or 64: the device is called sim32 or sim64.
std::unique_ptr<GpuDevice> make_device(int width, Schedule schedule = Schedule::forward);

}  // namespace ingot::gpu::sim
