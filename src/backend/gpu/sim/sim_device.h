// The simulated GPUs: host memory that only copies reach, and kernels run by the executor. Slow; never chosen by
// itself.
//
// Nothing runs before the host waits for it: launches and copies stand in their stream's queue until then, as they may
// on a device, so that what relies on a wait that is not there reads old memory, or host memory that was changed
// meanwhile. Of the copy stream's work as little as must be is done (Schedule::forward), as much as can be, as early as
// can be (backward), or some (random). The host's side of a copy is 0xff bytes from the call until the copy has run.
#pragma once

#include <memory>

#include "backend/gpu/gpu_device.h"
#include "backend/gpu/sim/executor.h"

namespace ingot::gpu::sim {

// `width` 32 or 64: the device is called sim32 or sim64. `schedule` is that of threads in a block, too.
std::unique_ptr<GpuDevice> make_device(int width, Schedule schedule = Schedule::forward);

}  // namespace ingot::gpu::sim
