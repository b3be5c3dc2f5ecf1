// The common interface of CUDA's driver API and HIP's module API, which are loaded at run time. Errors of every
// function: ErrorKind::resource when memory runs out, else ErrorKind::unavailable, with the driver's own name of the
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
  using GraphHandle = void*;  // instantiated, ready to launch

  virtual ~Driver() = default;
  virtual DeviceKind kind() const = 0;
  virtual const std::string& library() const = 0;  // path of the loaded library
  virtual std::string version() const = 0;
  virtual int num_devices() = 0;

  virtual std::string device_name(int device) = 0;
  virtual size_t memory_bytes(int device) = 0;
  // The architecture that code objects must match: "sm_90", "gfx942".
  virtual std::string architecture(int device) = 0;
  virtual std::string pci_address(int device) = 0;  // "0000:3b:00.0"
  // Makes the device the calling thread's current one; the functions below act on it.
  virtual void use(int device) = 0;

  // The driver's own handle of the current context; null if it has none (HIP).
  virtual void* context() = 0;

  virtual size_t free_bytes() = 0;
  virtual void* allocate(size_t bytes) = 0;  // already zero-filled on return
  virtual void release(void* data) noexcept = 0;
  virtual void* allocate_pinned(size_t bytes) = 0;  // page-locked
  virtual void release_host(void* data) noexcept = 0;

  // Streams that do not wait for the driver's own default stream. `urgent`: of the highest priority. HIP then gives
  // them hardware queues of their own, which other streams' work does not wait in.
  virtual StreamHandle make_stream(bool urgent) = 0;
  virtual void release_stream(StreamHandle stream) noexcept = 0;
  virtual void synchronize(StreamHandle stream) = 0;
  // Both return once the copy is queued; with host memory that is not page-locked it may be complete by then.
  virtual void copy_to_device(void* to, const void* from, size_t bytes, StreamHandle stream) = 0;
  virtual void copy_to_host(void* to, const void* from, size_t bytes, StreamHandle stream) = 0;
  virtual void fill_zero(void* data, size_t bytes, StreamHandle stream) = 0;

  virtual EventHandle make_event() = 0;  // without timing
  virtual void release_event(EventHandle event) noexcept = 0;
  virtual void record(EventHandle event, StreamHandle stream) = 0;
  virtual void wait_on(StreamHandle stream,
                       EventHandle event) = 0;  // later work in the stream waits for the event
  virtual bool done(EventHandle event) = 0;
  virtual void wait(EventHandle event) = 0;

  // `image`: a fatbin, PTX or an ELF file that the device can run (code_objects.h). The codes by which drivers refuse
  // another one differ between versions.
  virtual Module load(const void* image) = 0;
  virtual Function function(Module module, const char* name) = 0;
  // Raises the function's limit of dynamic shared memory to `bytes`.
  virtual void set_max_dynamic_shared(Function function, size_t bytes) = 0;
  // Launches the function with the argument struct at `args`.
  virtual void launch(Function function, Grid grid, int threads, size_t dynamic_shared_bytes, const void* args,
                      StreamHandle stream) = 0;

  // Stream capture: between the two calls, work that the calling thread submits to the stream is recorded, not run.
  // `end_capture` returns a graph that can be launched many times, with the number of its nodes; it also reports errors
  // of the recorded work.
  struct CapturedGraph {
    GraphHandle graph = nullptr;
    size_t nodes = 0;
  };
  virtual void begin_capture(StreamHandle stream) = 0;
  virtual CapturedGraph end_capture(StreamHandle stream) = 0;
  virtual void run(GraphHandle graph, StreamHandle stream) = 0;
  virtual void release_graph(GraphHandle graph) noexcept = 0;
};

// A driver, or the reason why there is none.
struct FoundDriver {
  std::unique_ptr<Driver> driver;
  std::string reason;
};

// INGOT_CUDA_LIBRARY and INGOT_HIP_LIBRARY name a library file to load instead of the default names.
FoundDriver find_cuda_driver();
FoundDriver find_hip_driver();

}  // namespace ingot::gpu
