// The simulated GPUs: host memory that only copies may reach, and kernels that the executor runs. Slow; never selected
// by default.
//
// Nothing runs before the host waits for it: until then launches and copies stay in their stream's queue, as they may
// on a real device. Code that forgets to wait therefore reads old memory, or copies host memory that has changed
// meanwhile. `Schedule` sets how far the copy stream runs ahead: not at all (forward), as far and as early as possible
// (backward), or randomly in between (random). From the start of a copy to the host until the copy has run, its
// destination is filled with 0xff bytes.
#pragma once

#include <memory>

#include "backend/gpu/gpu_device.h"
#include "backend/gpu/sim/executor.h"

namespace ingot::gpu::sim {

// `width` is 32 or 64: the device is named sim32 or sim64. `schedule` also orders blocks and their threads.
std::unique_ptr<GpuDevice> make_device(int width, Schedule schedule = Schedule::forward);

}  // namespace ingot::gpu::sim
