// The strict driver: CUDA's driver API and HIP's runtime API on a GPU that is a process of its own (gpu.h), as far as
// Ingot uses them. It does what their documentation allows and is least convenient for the caller: work runs late and
// in other threads, the destination of a copy holds 0xff bytes until the copy has run, memory that is freed is gone at
// once. What the documentation forbids is an error, and described on standard error.
#pragma once

#include <array>
#include <cstdarg>
#include <mutex>
#include <vector>

#include "tests/backend/gpu/strict/address_space.h"
#include "tests/backend/gpu/strict/library_call.h"
#include "tests/backend/gpu/strict/objects.h"
#include "tests/backend/gpu/strict/settings.h"

namespace strict {

struct Dim {
  unsigned x, y, z;
};

class Driver {
 public:
  Driver(bool hip, const char* gpu_executable);

  const Settings& settings() const { return settings_; }
  bool hip() const { return hip_; }
  Status status() const { return gpu_.status(); }

  // Devices. Handles (CUdevice, hipDevice_t) are ordinals + first_device here, so that the two are not confused.
  static constexpr int first_device = 70;
  Status retain_context(void** context, int device);
  Status set_context(void* context);
  Status set_device(int ordinal);

  // driver_memory.cpp
  Status memory_info(size_t* free, size_t* total);
  Status allocate(void** data, size_t bytes);
  Status release(void* data);
  Status allocate_host(void** data, size_t bytes, unsigned flags);
  Status release_host(void* data);
  Status fill(void* data, unsigned char value, size_t bytes, void* stream);
  Status copy_to_device(void* to, const void* from, size_t bytes, void* stream);
  Status copy_to_host(void* to, const void* from, size_t bytes, void* stream);

  // driver_streams.cpp
  Status stream_priorities(int* lowest, int* highest);
  Status make_stream(void** stream, unsigned flags, int priority);
  Status destroy_stream(void* stream);
  Status synchronize_stream(void* stream);
  Status make_event(void** event, unsigned flags);
  Status destroy_event(void* event);
  Status record(void* event, void* stream);
  Status wait_in_stream(void* stream, void* event, unsigned flags);
  Status query(void* event);
  Status synchronize_event(void* event);
  Status begin_capture(void* stream, int mode);
  Status end_capture(void* stream, void** graph);
  Status graph_nodes(void* graph, void** nodes, size_t* count);
  Status instantiate(void** executable, void* graph, unsigned long long flags);
  Status destroy_graph(void* graph);
  Status launch_graph(void* executable, void* stream);
  Status destroy_executable(void* executable);

  // driver_kernels.cpp
  Status load_module(void** module, const void* image);
  Status find_function(void** function, void* module, const char* name);
  Status set_function_attribute(void* function, int attribute, int value);
  Status launch(void* function, Dim grid, Dim block, unsigned shared_bytes, void* stream, void** parameters,
                void** extra);

  // driver_libraries.cpp: library_call.h
  Status current_device(int* device);
  Status may_allocate(const char* what);
  Status share(void** copy, const void* data, size_t bytes);
  Status call_library(const LibraryCall& call);

 private:
  using Lock = std::unique_lock<std::mutex>;

  // Success where a call that needs a current context may be made.
  Status ready() const;
  // A smaller number is a higher priority. The ranges of an H200 and an MI300X.
  int lowest_priority() const { return hip_ ? 1 : 0; }
  int highest_priority() const { return hip_ ? -1 : -5; }
  // Describes a misuse on standard error and returns `status`.
  [[gnu::format(printf, 3, 4)]] Status misuse(Status status, const char* text, ...) const;
  // Where the calling thread captures: ends its capture's validity and returns the error.
  Status refuse_in_capture(const char* what);
  Status invalidate(Stream& stream, Status status, const char* what);
  // The stream of a handle, or the device's own for null. Null, after misuse(), unless it is of the current device.
  Stream* stream_of(void* handle);
  // Appends to the stream, or to its capture.
  Status submit(Stream& stream, const Command& command);
  Status wait(Lock& lock, Mark mark);

  size_t max_dynamic_shared() const;
  bool is_page_locked(const void* data) const;
  bool check_device_range(const void* data, size_t bytes) const;
  uintptr_t stage(size_t bytes);
  void unstage(uintptr_t data);
  void free_staged(Stream& stream);

  const bool hip_;
  const Settings settings_;
  const uintptr_t base_;
  Gpu gpu_;
  std::mutex mutex_;
  AddressSpace device_memory_;
  AddressSpace host_memory_;
  std::vector<size_t> used_;  // bytes of each device
  std::vector<Stream*> default_streams_;
  std::vector<Context*> contexts_;
  Objects objects_;

  static thread_local int current_;  // ordinal of the device; CUDA: -1 in a thread without context
  static thread_local Stream* capturing_;
};

}  // namespace strict
