// Selects the GPU that is used when none is named: the first one that works.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/gpu/runtime/driver_device.h"

namespace ingot::gpu {

struct FirstGpu {
  std::unique_ptr<GpuDevice> device;  // null if none works
  std::string model;                  // "NVIDIA H200"
  bool any = false;                   // true if any device exists, working or not
  std::string missing;                // why the candidates before `device`, or all without one, are unusable
};

// The first device, in the order of `drivers`, that this build has code for and that passes a small test computation.
FirstGpu first_gpu(std::vector<FoundDriver> drivers, const DriverDeviceSettings& settings = {});

}  // namespace ingot::gpu
