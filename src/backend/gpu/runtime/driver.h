// What CUDA's driver API and HIP's module API have in common, bound when a device is asked for. Errors of every
// function: ErrorKind::resource for want of memory, else ErrorKind::unavailable, with the driver's own name of the
// error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "backend/gpu/kernel.h"
#include "tensor/device.h"

namespace ingot::gpu {

class Driver {
 public:
  using Module = void*;
  using Function = void*;

  virtual ~Driver() = default;
  virtual DeviceKind kind() const = 0;
  virtual const std::string& library() const = 0;  // where it was found
  virtual std::string version() const = 0;
  virtual int num_devices() = 0;

  virtual std::string device_name(int device) = 0;
  virtual size_t memory_bytes(int device) = 0;
  // Names which code objects may run: "sm_90"; empty when the driver does not say (HIP: the code object that loads
  // tells).
  virtual std::string architecture(int device) = 0;
  // Makes it the calling thread's; what follows is about it.
  virtual void use(int device) = 0;

  virtual size_t free_bytes() = 0;
  virtual void* allocate(size_t bytes) = 0;  // zero-filled
  virtual void release(void* data) noexcept = 0;
  virtual void copy_to_device(void* to, const void* from, size_t bytes) = 0;
  virtual void copy_to_host(void* to, const void* from, size_t bytes) = 0;

  // Null when the image holds no code for this device.
  virtual Module load(const void* image) = 0;
  virtual Function function(Module module, const char* name) = 0;
  // Lets the function have this much dynamic shared memory.
  virtual void allow_shared(Function function, size_t bytes) = 0;
  // Starts it with the argument struct at `args`.
  virtual void launch(Function function, Grid grid, int threads, size_t dynamic_shared_bytes, const void* args) = 0;
  virtual void synchronize() = 0;
};

// A driver, or why there is none.
struct FoundDriver {
  std::unique_ptr<Driver> driver;
  std::string reason;
};

// INGOT_CUDA_LIBRARY and INGOT_HIP_LIBRARY name a library file in place of those that are looked for.
FoundDriver find_cuda_driver();
FoundDriver find_hip_driver();

}  // namespace ingot::gpu
