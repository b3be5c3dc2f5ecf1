// The driver beneath a stand-in for a vendor's library: host memory (host_driver.cpp) for tests of our bindings, or the
// strict driver (strict_driver.cpp) for runs of the whole program.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <type_traits>
#include <vector>

#include "tests/backend/gpu/strict/library_call.h"

namespace fake {

using strict::DeviceMemory;

// The number of the device that is current in the calling thread; -1, and a line on standard error, where there is
// none.
int current_device();

// Whether the calling thread may allocate memory now. A capture forbids it, and becomes invalid.
bool may_allocate(const char* what);

// A copy of the bytes that functions on the device can read, until the process ends; null where that fails.
void* share(const void* data, size_t bytes);

// Appends a call of the function to the stream. False, and a line on standard error, where the driver refuses it: for a
// stream that was destroyed or is of another device than the current one, for `memory` that is not within allocations
// of this device, for another current device than `device`, and for an earlier error.
bool launch(int device, void* stream, const char* function, const void* args, size_t args_bytes,
            const std::vector<DeviceMemory>& memory);
template <class Args>
bool launch(int device, void* stream, const Args& args, const std::vector<DeviceMemory>& memory) {
  static_assert(std::is_trivially_copyable_v<Args>);
  return launch(device, stream, Args::name, &args, sizeof args, memory);
}

// Describes a misuse of the library on standard error; returns false.
[[gnu::format(printf, 1, 2)]] bool misuse(const char* text, ...);

}  // namespace fake
