// A GPU, or what stands for one: memory of its own, and kernels that run on it in the order of their launches.
#pragma once

#include "backend/gpu/kernel.h"
#include "tensor/device.h"

namespace ingot::gpu {

class GpuDevice : public Device {
 public:
  bool host_visible() const override { return false; }
  virtual int warp_width() const = 0;

  // Starts the kernel with a copy of its arguments and returns; later launches and copies wait for it. Errors of the
  // device may be told by a later call, naming that one too.
  virtual void launch(const KernelInfo& kernel, const void* args, Grid grid, size_t dynamic_shared_bytes) = 0;
};

}  // namespace ingot::gpu
