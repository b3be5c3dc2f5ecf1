// HIP's module API (the documentation's names without `hip`), declared here so that no header of ROCm's is needed. None
// of the functions takes a struct whose layout changes between versions.
#include <fmt/format.h>

#include <cstdlib>
#include <string_view>
#include <vector>

#include "backend/gpu/runtime/driver.h"
#include "backend/gpu/runtime/library.h"
#include "base/error.h"

namespace ingot::gpu {
namespace {

using Status = int;  // hipError_t
constexpr Status success = 0;
constexpr Status out_of_memory = 2;
constexpr Status invalid_image = 200;
constexpr Status no_binary_for_gpu = 209;
constexpr Status not_ready = 600;
constexpr unsigned non_blocking = 1;   // hipStreamNonBlocking
constexpr unsigned without_times = 2;  // hipEventDisableTiming
constexpr int recorded_by_thread = 1;  // hipStreamCaptureModeThreadLocal

struct Functions {
  explicit Functions(const Library& l)
      : Init(l.function<Status(unsigned)>("hipInit")),
        GetErrorName(l.function<const char*(Status)>("hipGetErrorName")),
        RuntimeGetVersion(l.function<Status(int*)>("hipRuntimeGetVersion")),
        GetDeviceCount(l.function<Status(int*)>("hipGetDeviceCount")),
        DeviceGetName(l.function<Status(char*, int, int)>("hipDeviceGetName")),
        DeviceTotalMem(l.function<Status(size_t*, int)>("hipDeviceTotalMem")),
        SetDevice(l.function<Status(int)>("hipSetDevice")),
        MemGetInfo(l.function<Status(size_t*, size_t*)>("hipMemGetInfo")),
        Malloc(l.function<Status(void**, size_t)>("hipMalloc")),
        Free(l.function<Status(void*)>("hipFree")),
        HostMalloc(l.function<Status(void**, size_t, unsigned)>("hipHostMalloc")),
        HostFree(l.function<Status(void*)>("hipHostFree")),
        MemsetAsync(l.function<Status(void*, int, size_t, void*)>("hipMemsetAsync")),
        MemcpyHtoDAsync(l.function<Status(void*, const void*, size_t, void*)>("hipMemcpyHtoDAsync")),
        MemcpyDtoHAsync(l.function<Status(void*, const void*, size_t, void*)>("hipMemcpyDtoHAsync")),
        StreamCreateWithFlags(l.function<Status(void**, unsigned)>("hipStreamCreateWithFlags")),
        StreamDestroy(l.function<Status(void*)>("hipStreamDestroy")),
        StreamSynchronize(l.function<Status(void*)>("hipStreamSynchronize")),
        StreamWaitEvent(l.function<Status(void*, void*, unsigned)>("hipStreamWaitEvent")),
        StreamBeginCapture(l.function<Status(void*, int)>("hipStreamBeginCapture")),
        StreamEndCapture(l.function<Status(void*, void**)>("hipStreamEndCapture")),
        EventCreateWithFlags(l.function<Status(void**, unsigned)>("hipEventCreateWithFlags")),
        EventDestroy(l.function<Status(void*)>("hipEventDestroy")),
        EventRecord(l.function<Status(void*, void*)>("hipEventRecord")),
        EventQuery(l.function<Status(void*)>("hipEventQuery")),
        EventSynchronize(l.function<Status(void*)>("hipEventSynchronize")),
        GraphInstantiate(l.function<Status(void**, void*, void**, char*, size_t)>("hipGraphInstantiate")),
        GraphDestroy(l.function<Status(void*)>("hipGraphDestroy")),
        GraphLaunch(l.function<Status(void*, void*)>("hipGraphLaunch")),
        GraphExecDestroy(l.function<Status(void*)>("hipGraphExecDestroy")),
        ModuleLoadData(l.function<Status(void**, const void*)>("hipModuleLoadData")),
        ModuleGetFunction(l.function<Status(void**, void*, const char*)>("hipModuleGetFunction")),
        ModuleLaunchKernel(l.function<Status(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                                             unsigned, void*, void**, void**)>("hipModuleLaunchKernel")) {}

  Status (*Init)(unsigned);
  const char* (*GetErrorName)(Status);
  Status (*RuntimeGetVersion)(int*);
  Status (*GetDeviceCount)(int*);
  Status (*DeviceGetName)(char*, int, int);
  Status (*DeviceTotalMem)(size_t*, int);
  Status (*SetDevice)(int);
  Status (*MemGetInfo)(size_t*, size_t*);
  Status (*Malloc)(void**, size_t);
  Status (*Free)(void*);
  Status (*HostMalloc)(void**, size_t, unsigned);
  Status (*HostFree)(void*);
  Status (*MemsetAsync)(void*, int, size_t, void*);
  Status (*MemcpyHtoDAsync)(void*, const void*, size_t, void*);
  Status (*MemcpyDtoHAsync)(void*, const void*, size_t, void*);
  Status (*StreamCreateWithFlags)(void**, unsigned);
  Status (*StreamDestroy)(void*);
  Status (*StreamSynchronize)(void*);
  Status (*StreamWaitEvent)(void*, void*, unsigned);
  Status (*StreamBeginCapture)(void*, int);
  Status (*StreamEndCapture)(void*, void**);
  Status (*EventCreateWithFlags)(void**, unsigned);
  Status (*EventDestroy)(void*);
  Status (*EventRecord)(void*, void*);
  Status (*EventQuery)(void*);
  Status (*EventSynchronize)(void*);
  Status (*GraphInstantiate)(void**, void*, void**, char*, size_t);
  Status (*GraphDestroy)(void*);
  Status (*GraphLaunch)(void*, void*);
  Status (*GraphExecDestroy)(void*);
  Status (*ModuleLoadData)(void**, const void*);
  Status (*ModuleGetFunction)(void**, void*, const char*);
  Status (*ModuleLaunchKernel)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*,
                               void**, void**);
};

class HipDriver : public Driver {
 public:
  explicit HipDriver(std::unique_ptr<Library> library) : library_(std::move(library)), hip_(*library_) {
    check(hip_.Init(0), "starting the driver");
  }

  DeviceKind kind() const override { return DeviceKind::hip; }
  const std::string& library() const override { return library_->path(); }
  std::string version() const override {
    int version = 0;
    check(hip_.RuntimeGetVersion(&version), "the runtime's version");
    return fmt::format("HIP {}.{}.{}", version / 10'000'000, version / 100'000 % 100, version % 100'000);
  }
  int num_devices() override {
    int count = 0;
    check(hip_.GetDeviceCount(&count), "counting devices");
    return count;
  }

  std::string device_name(int device) override {
    char name[256] = {};
    check(hip_.DeviceGetName(name, sizeof name - 1, device), "a device's name");
    return name;
  }
  size_t memory_bytes(int device) override {
    size_t bytes = 0;
    check(hip_.DeviceTotalMem(&bytes, device), "a device's memory");
    return bytes;
  }
  std::string architecture(int) override { return {}; }
  void use(int device) override { check(hip_.SetDevice(device), fmt::format("device {}", device)); }
  void* context() override { return nullptr; }

  size_t free_bytes() override {
    size_t free = 0;
    size_t total = 0;
    check(hip_.MemGetInfo(&free, &total), "free memory");
    return free;
  }
  void* allocate(size_t bytes) override {
    void* data = nullptr;
    check(hip_.Malloc(&data, bytes), fmt::format("{} bytes of memory", bytes));
    check(hip_.MemsetAsync(data, 0, bytes, nullptr), "clearing memory");
    check(hip_.StreamSynchronize(nullptr), "clearing memory");
    return data;
  }
  void release(void* data) noexcept override { hip_.Free(data); }
  void* allocate_host(size_t bytes) override {
    void* data = nullptr;
    check(hip_.HostMalloc(&data, bytes, 0), fmt::format("{} bytes of page-locked host memory", bytes));
    return data;
  }
  void release_host(void* data) noexcept override { hip_.HostFree(data); }

  StreamHandle make_stream() override {
    StreamHandle stream = nullptr;
    check(hip_.StreamCreateWithFlags(&stream, non_blocking), "a stream");
    return stream;
  }
  void release_stream(StreamHandle stream) noexcept override { hip_.StreamDestroy(stream); }
  void synchronize(StreamHandle stream) override { check(hip_.StreamSynchronize(stream), "waiting for the device"); }
  void copy_to_device(void* to, const void* from, size_t bytes, StreamHandle stream) override {
    check(hip_.MemcpyHtoDAsync(to, from, bytes, stream), "a copy to the device");
  }
  void copy_to_host(void* to, const void* from, size_t bytes, StreamHandle stream) override {
    check(hip_.MemcpyDtoHAsync(to, from, bytes, stream), "a copy from the device");
  }

  EventHandle make_event() override {
    EventHandle event = nullptr;
    check(hip_.EventCreateWithFlags(&event, without_times), "an event");
    return event;
  }
  void release_event(EventHandle event) noexcept override { hip_.EventDestroy(event); }
  void record(EventHandle event, StreamHandle stream) override {
    check(hip_.EventRecord(event, stream), "recording an event");
  }
  void hold(StreamHandle stream, EventHandle event) override {
    check(hip_.StreamWaitEvent(stream, event, 0), "a stream's wait for an event");
  }
  bool done(EventHandle event) override {
    const Status status = hip_.EventQuery(event);
    if (status != not_ready) check(status, "an event");
    return status == success;
  }
  void wait(EventHandle event) override { check(hip_.EventSynchronize(event), "waiting for the device"); }

  Module load(const void* image) override {
    Module module = nullptr;
    const Status status = hip_.ModuleLoadData(&module, image);
    if (status == no_binary_for_gpu || status == invalid_image) return nullptr;
    check(status, "loading device code");
    return module;
  }
  Function function(Module module, const char* name) override {
    Function function = nullptr;
    check(hip_.ModuleGetFunction(&function, module, name), name);
    return function;
  }
  void allow_shared(Function, size_t) override {}  // kernels may have all that a workgroup can have
  void launch(Function function, Grid grid, int threads, size_t dynamic_shared_bytes, const void* args,
              StreamHandle stream) override {
    void* parameters[] = {const_cast<void*>(args)};
    check(hip_.ModuleLaunchKernel(function, static_cast<unsigned>(grid.x), static_cast<unsigned>(grid.y), 1,
                                  static_cast<unsigned>(threads), 1, 1, static_cast<unsigned>(dynamic_shared_bytes),
                                  stream, parameters, nullptr),
          "a launch");
  }

  void begin_recording(StreamHandle stream) override {
    check(hip_.StreamBeginCapture(stream, recorded_by_thread), "recording launches");
  }
  GraphHandle end_recording(StreamHandle stream) override {
    void* graph = nullptr;
    check(hip_.StreamEndCapture(stream, &graph), "recording launches");
    GraphHandle ready = nullptr;
    const Status status = hip_.GraphInstantiate(&ready, graph, nullptr, nullptr, 0);
    hip_.GraphDestroy(graph);
    check(status, "making a graph of recorded launches");
    return ready;
  }
  void run(GraphHandle graph, StreamHandle stream) override { check(hip_.GraphLaunch(graph, stream), "a graph"); }
  void release_graph(GraphHandle graph) noexcept override { hip_.GraphExecDestroy(graph); }

 private:
  void check(Status status, std::string_view what) const {
    if (status == success) return;
    const char* name = hip_.GetErrorName(status);
    throw_error(status == out_of_memory ? ErrorKind::resource : ErrorKind::unavailable, "HIP: {}: {} ({})", what,
                name != nullptr ? name : "unknown error", status);
  }

  std::unique_ptr<Library> library_;
  Functions hip_;
};

}  // namespace

FoundDriver find_hip_driver() {
  // The names by ROCm's versions 7, 6 and 5; the last one is Debian 12's.
  const std::vector<std::string> names{"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"};
  const char* named = std::getenv("INGOT_HIP_LIBRARY");
  auto library = named != nullptr
                     ? std::make_unique<Library>(std::vector<std::string>{named}, std::vector<std::string>{})
                     : std::make_unique<Library>(names, std::vector<std::string>{"/opt/rocm/lib", "/opt/rocm/lib64"});
  if (!*library) return {nullptr, library->reason()};
  try {
    return {std::make_unique<HipDriver>(std::move(library)), ""};
  } catch (const Error& error) {
    return {nullptr, error.message()};
  }
}

}  // namespace ingot::gpu
