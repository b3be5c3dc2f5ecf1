// What the strict driver does for the stand-in libraries beside it (../fakes/strict_driver.cpp), by functions that no
// real driver has. All return the driver's status:
//   int strict_current_device(int* device): the ordinal of the calling thread's device
//   int strict_may_allocate(const char* what): success where the calling thread may allocate memory; else a capture
//     becomes invalid
//   int strict_share(void** copy, const void* data, size_t bytes): a copy that the GPU can read, and the program write
//   int strict_call_library(const strict::LibraryCall* call): appends a call to a stream
#pragma once

#include <cstddef>

namespace strict {

struct DeviceMemory {
  const void* data;
  size_t bytes;
};

struct LibraryCall {
  int device;  // of the library's handle: it must be current
  void* stream;
  const char* function;  // fakes/device_functions.h
  const void* args;
  size_t args_bytes;
  const DeviceMemory* memory;  // must be within allocations
  size_t memory_count;
};

}  // namespace strict
