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
  using StreamHandle = void*;  // CUstream, hipStream_t
  using EventHandle = void*;
  using GraphHandle = void*;  // ready to run

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
  virtual std::string pci_address(int device) = 0;  // "0000:3b:00.0"
  // Makes it the calling thread's; what follows is about it.
  virtual void use(int device) = 0;

  // The driver's own handle of the context that is in use; null when it has none (HIP).
  virtual void* context() = 0;

  virtual size_t free_bytes() = 0;
  virtual void* allocate(size_t bytes) = 0;  // zero-filled, and that done
  virtual void release(void* data) noexcept = 0;
  virtual void* allocate_host(size_t bytes) = 0;  // page-locked
  virtual void release_host(void* data) noexcept = 0;

  // Streams that do not wait for the driver's own default stream.
  virtual StreamHandle make_stream() = 0;
  virtual void release_stream(StreamHandle stream) noexcept = 0;
  virtual void synchronize(StreamHandle stream) = 0;
  // Both return when the copy is under way; from or to memory that is not page-locked it may be done by then.
  virtual void copy_to_device(void* to, const void* from, size_t bytes, StreamHandle stream) = 0;
  virtual void copy_to_host(void* to, const void* from, size_t bytes, StreamHandle stream) = 0;

  virtual EventHandle make_event() = 0;  // without times
  virtual void release_event(EventHandle event) noexcept = 0;
  virtual void record(EventHandle event, StreamHandle stream) = 0;
  virtual void hold(StreamHandle stream, EventHandle event) = 0;  // what the stream is given later waits for the event
  virtual bool done(EventHandle event) = 0;
  virtual void wait(EventHandle event) = 0;

  // Null when the image holds no code for this device.
  virtual Module load(const void* image) = 0;
  virtual Function function(Module module, const char* name) = 0;
  // Lets the function have this much dynamic shared memory.
  virtual void allow_shared(Function function, size_t bytes) = 0;
  // Starts it with the argument struct at `args`.
  virtual void launch(Function function, Grid grid, int threads, size_t dynamic_shared_bytes, const void* args,
                      StreamHandle stream) = 0;

  // Between the two, what the calling thread gives the stream is recorded and not run. `end_recording` makes it ready
  // to run again; its errors are those of what was recorded, too.
  virtual void begin_recording(StreamHandle stream) = 0;
  virtual GraphHandle end_recording(StreamHandle stream) = 0;
  virtual void run(GraphHandle graph, StreamHandle stream) = 0;
  virtual void release_graph(GraphHandle graph) noexcept = 0;
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
