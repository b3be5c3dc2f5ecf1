// GPU devices on top of a vendor's driver.
#pragma once

#include <memory>
#include <optional>
#include <span>

#include "backend/gpu/gpu_device.h"
#include "backend/gpu/runtime/code_objects.h"
#include "backend/gpu/runtime/driver.h"

namespace ingot::gpu {

struct DriverDeviceSettings {
  // Overrides Device::replays(). Absent: true until the driver has not recorded all launches of a graph, which a
  // warning says. With true that is an error.
  std::optional<bool> replays{};
  // Synchronises after every launch, so that an error names the op that caused it.
  bool wait_for_launches = false;
  std::span<const CodeObject> code = code_objects();
};

// Device `index` of the driver. ErrorKind::unavailable when there is no such device, or when this build has no code for
// it.
std::unique_ptr<GpuDevice> make_device(std::shared_ptr<Driver> driver, int index,
                                       const DriverDeviceSettings& settings = {});

}  // namespace ingot::gpu
