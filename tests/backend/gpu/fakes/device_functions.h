// What the stand-ins for vendors' libraries run on a device, by name: in unit tests at once on host memory, on the
// strict driver in the process that is its GPU.
#pragma once

#include <cstddef>
#include <string_view>

namespace fake {

struct DeviceFunction {
  const char* name;
  size_t args_bytes;
  void (*run)(const void* args);
};

// Null if there is none of this name.
const DeviceFunction* find_device_function(std::string_view name);

}  // namespace fake
