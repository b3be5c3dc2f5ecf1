// The common implementation of CUDA's driver API and HIP's module API: the functions differ only in their names, and
// the status codes and flags used here have the same values. Declared here so that no vendor's header is needed; none
// of the functions takes a struct whose layout changes between versions.
#pragma once

#include <fmt/format.h>

#include <string_view>
#include <vector>

#include "backend/gpu/runtime/driver.h"
#include "base/environment.h"
#include "base/error.h"
#include "base/shared_library.h"

namespace ingot::gpu {

class ModuleDriver : public Driver {
 public:
  // Must be called before everything else. May fail where the library is installed but there is no device.
  void start() const { check(api_.Init(0), "starting the driver"); }

  const std::string& library() const override { return library_->path(); }
  int num_devices() override {
    int count = 0;
    check(api_.GetDeviceCount(&count), "counting devices");
    return count;
  }
  std::string device_name(int device) override {
    char name[256] = {};
    check(api_.DeviceGetName(name, sizeof name - 1, handle(device)), "a device's name");
    return name;
  }
  size_t memory_bytes(int device) override {
    size_t bytes = 0;
    check(api_.DeviceTotalMem(&bytes, handle(device)), "a device's memory");
    return bytes;
  }
  std::string pci_address(int device) override {
    char address[32] = {};
    check(api_.DeviceGetPCIBusId(address, sizeof address, handle(device)), "a device's address");
    for (char& digit : address) {  // CUDA writes capital letters, /sys small ones
      if (digit >= 'A' && digit <= 'F') digit = static_cast<char>(digit - 'A' + 'a');
    }
    return address;
  }

  size_t free_bytes() override {
    size_t free = 0;
    size_t total = 0;
    check(api_.MemGetInfo(&free, &total), "free memory");
    return free;
  }
  void* allocate(size_t bytes) override {
    void* data = nullptr;
    check(api_.MemAlloc(&data, bytes), fmt::format("{} bytes of memory", bytes));
    check(api_.MemsetD8Async(data, 0, bytes, nullptr), "clearing memory");
    check(api_.StreamSynchronize(nullptr), "clearing memory");
    return data;
  }
  void release(void* data) noexcept override { api_.MemFree(data); }
  void* allocate_pinned(size_t bytes) override {
    void* data = nullptr;
    check(api_.MemHostAlloc(&data, bytes, 0), fmt::format("{} bytes of page-locked host memory", bytes));
    return data;
  }
  void release_host(void* data) noexcept override { api_.MemFreeHost(data); }

  StreamHandle make_stream(bool urgent) override {
    StreamHandle stream = nullptr;
    int lowest = 0, highest = 0;  // the lowest has the largest number
    check(api_.StreamPriorityRange(&lowest, &highest), "the priorities of streams");
    check(api_.StreamCreate(&stream, non_blocking, urgent ? highest : 0), "a stream");
    return stream;
  }
  void release_stream(StreamHandle stream) noexcept override { api_.StreamDestroy(stream); }
  void synchronize(StreamHandle stream) override { check(api_.StreamSynchronize(stream), "waiting for the device"); }
  void copy_to_device(void* to, const void* from, size_t bytes, StreamHandle stream) override {
    check(api_.MemcpyHtoDAsync(to, from, bytes, stream), "a copy to the device");
  }
  void copy_to_host(void* to, const void* from, size_t bytes, StreamHandle stream) override {
    check(api_.MemcpyDtoHAsync(to, from, bytes, stream), "a copy from the device");
  }

  void fill_zero(void* data, size_t bytes, StreamHandle stream) override {
    check(api_.MemsetD8Async(data, 0, bytes, stream), "clearing memory");
  }
  EventHandle make_event() override {
    EventHandle event = nullptr;
    check(api_.EventCreate(&event, without_times), "an event");
    return event;
  }
  void release_event(EventHandle event) noexcept override { api_.EventDestroy(event); }
  void record(EventHandle event, StreamHandle stream) override {
    check(api_.EventRecord(event, stream), "recording an event");
  }
  void wait_on(StreamHandle stream, EventHandle event) override {
    check(api_.StreamWaitEvent(stream, event, 0), "a stream's wait for an event");
  }
  bool done(EventHandle event) override {
    const Status status = api_.EventQuery(event);
    if (status != not_ready) check(status, "an event");
    return status == success;
  }
  void wait(EventHandle event) override { check(api_.EventSynchronize(event), "waiting for the device"); }

  Module load(const void* image) override {
    Module module = nullptr;
    check(api_.ModuleLoadData(&module, image), "loading device code");
    return module;
  }
  Function function(Module module, const char* name) override {
    Function function = nullptr;
    check(api_.ModuleGetFunction(&function, module, name), name);
    return function;
  }
  void launch(Function function, Grid grid, int threads, size_t dynamic_shared_bytes, const void* args,
              StreamHandle stream) override {
    void* parameters[] = {const_cast<void*>(args)};
    check(api_.LaunchKernel(function, static_cast<unsigned>(grid.x), static_cast<unsigned>(grid.y), 1,
                            static_cast<unsigned>(threads), 1, 1, static_cast<unsigned>(dynamic_shared_bytes), stream,
                            parameters, nullptr),
          "a launch");
  }

  void begin_capture(StreamHandle stream) override {
    check(api_.StreamBeginCapture(stream, recorded_by_thread), "recording launches");
  }
  CapturedGraph end_capture(StreamHandle stream) override {
    void* graph = nullptr;
    check(api_.StreamEndCapture(stream, &graph), "recording launches");
    CapturedGraph captured;
    Status status = api_.GraphGetNodes(graph, nullptr, &captured.nodes);
    if (status == success) status = api_.GraphInstantiate(&captured.graph, graph, 0);
    api_.GraphDestroy(graph);
    check(status, "making a graph of recorded launches");
    return captured;
  }
  void run(GraphHandle graph, StreamHandle stream) override { check(api_.GraphLaunch(graph, stream), "a graph"); }
  void release_graph(GraphHandle graph) noexcept override { api_.GraphExecDestroy(graph); }

 protected:
  using Status = int;  // CUresult, hipError_t
  static constexpr Status success = 0;

  // The functions, named as CUDA's without `cu`. A device address (CUdeviceptr, hipDeviceptr_t) is a pointer here;
  // CUDA's is an integer of the same size, which is passed in the same way.
  struct Functions {
    Status (*Init)(unsigned);
    Status (*GetVersion)(int*);
    Status (*GetDeviceCount)(int*);
    Status (*DeviceGet)(int*, int);
    Status (*DeviceGetName)(char*, int, int);
    Status (*DeviceTotalMem)(size_t*, int);
    Status (*DeviceGetPCIBusId)(char*, int, int);
    Status (*MemGetInfo)(size_t*, size_t*);
    Status (*MemAlloc)(void**, size_t);
    Status (*MemFree)(void*);
    Status (*MemHostAlloc)(void**, size_t, unsigned);
    Status (*MemFreeHost)(void*);
    Status (*MemsetD8Async)(void*, unsigned char, size_t, void*);
    Status (*MemcpyHtoDAsync)(void*, const void*, size_t, void*);
    Status (*MemcpyDtoHAsync)(void*, const void*, size_t, void*);
    Status (*StreamPriorityRange)(int*, int*);
    Status (*StreamCreate)(void**, unsigned, int);
    Status (*StreamDestroy)(void*);
    Status (*StreamSynchronize)(void*);
    Status (*StreamWaitEvent)(void*, void*, unsigned);
    Status (*StreamBeginCapture)(void*, int);
    Status (*StreamEndCapture)(void*, void**);
    Status (*EventCreate)(void**, unsigned);
    Status (*EventDestroy)(void*);
    Status (*EventRecord)(void*, void*);
    Status (*EventQuery)(void*);
    Status (*EventSynchronize)(void*);
    Status (*GraphGetNodes)(void*, void**, size_t*);
    Status (*GraphInstantiate)(void**, void*, unsigned long long);
    Status (*GraphDestroy)(void*);
    Status (*GraphLaunch)(void*, void*);
    Status (*GraphExecDestroy)(void*);
    Status (*ModuleLoadData)(void**, const void*);
    Status (*ModuleGetFunction)(void**, void*, const char*);
    Status (*LaunchKernel)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**,
                           void**);
  };

  // The vendor's constructor must bind all of `api_`. `name`: the prefix of error messages.
  ModuleDriver(std::string name, std::unique_ptr<SharedLibrary> library)
      : library_(std::move(library)), name_(std::move(name)) {}

  template <class Function>
  void bind(Function*& function, const char* name) const {
    library_->bind(function, name);
  }
  bool has(const char* name) const { return library_->has(name); }
  int version_number(std::string_view what) const {
    int version = 0;
    check(api_.GetVersion(&version), what);
    return version;
  }
  int handle(int device) const {
    int handle = 0;
    check(api_.DeviceGet(&handle, device), fmt::format("device {}", device));
    return handle;
  }
  virtual const char* error_name(Status status) const = 0;  // null: no name
  void check(Status status, std::string_view what) const {
    if (status == success) return;
    const char* name = error_name(status);
    throw_error(status == out_of_memory ? ErrorKind::resource : ErrorKind::unavailable, "{}: {}: {} ({})", name_, what,
                name != nullptr ? name : "unknown error", status);
  }

  Functions api_{};

 private:
  static constexpr Status out_of_memory = 2;
  static constexpr Status not_ready = 600;
  static constexpr unsigned non_blocking = 1;   // CU_STREAM_NON_BLOCKING, hipStreamNonBlocking
  static constexpr unsigned without_times = 2;  // CU_EVENT_DISABLE_TIMING, hipEventDisableTiming
  static constexpr int recorded_by_thread = 1;  // CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, hipStreamCaptureModeThreadLocal

  std::unique_ptr<SharedLibrary> library_;
  std::string name_;
};

// The driver in the file that the environment variable `variable` names, or else in the first of `names` that can be
// opened.
template <class Found>
FoundDriver find_driver(const char* variable, std::vector<std::string> names, std::vector<std::string> folders) {
  if (const char* named = environment(variable); named != nullptr) {
    names = {named};
    folders = {};
  }
  auto library = std::make_unique<SharedLibrary>(names, folders);
  if (!*library) return {nullptr, library->reason()};
  try {
    auto driver = std::make_unique<Found>(std::move(library));
    driver->start();
    return {std::move(driver), ""};
  } catch (const Error& error) {
    return {nullptr, error.message()};
  }
}

}  // namespace ingot::gpu
