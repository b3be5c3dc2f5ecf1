// What "the GPU of this machine" is.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/gpu/runtime/driver_device.h"

namespace ingot::gpu {

struct FirstGpu {
  std::unique_ptr<GpuDevice> device;  // null when none works
  std::string model;                  // "NVIDIA H200"
  bool any = false;                   // there are devices, whether or not they work
  std::string missing;                // why those before it do not serve, or none does
};

// The first device, driver by driver, that this build has code for and that computes a small sum right.
FirstGpu first_gpu(std::vector<FoundDriver> drivers, const DriverDeviceSettings& settings = {});

}  // namespace ingot::gpu
