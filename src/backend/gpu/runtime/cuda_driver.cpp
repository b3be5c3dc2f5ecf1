// CUDA's driver API (the documentation's names without `cu`), declared here so that no header of CUDA's is needed.
#include <fmt/format.h>

#include <cstdlib>
#include <string_view>
#include <vector>

#include "backend/gpu/runtime/driver.h"
#include "backend/gpu/runtime/library.h"
#include "base/error.h"

namespace ingot::gpu {
namespace {

using Status = int;  // CUresult
constexpr Status success = 0;
constexpr Status out_of_memory = 2;
constexpr Status invalid_image = 200;
constexpr Status no_binary_for_gpu = 209;
constexpr Status unsupported_ptx_version = 222;
constexpr Status not_ready = 600;
constexpr unsigned non_blocking = 1;   // CU_STREAM_NON_BLOCKING
constexpr unsigned without_times = 2;  // CU_EVENT_DISABLE_TIMING
constexpr int recorded_by_thread = 1;  // CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
constexpr int capability_major = 75;   // CUdevice_attribute
constexpr int capability_minor = 76;
constexpr int max_dynamic_shared = 8;  // CUfunction_attribute
using Address = unsigned long long;    // CUdeviceptr

struct Functions {
  explicit Functions(const Library& l)
      : Init(l.function<Status(unsigned)>("cuInit")),
        GetErrorName(l.function<Status(Status, const char**)>("cuGetErrorName")),
        DriverGetVersion(l.function<Status(int*)>("cuDriverGetVersion")),
        DeviceGetCount(l.function<Status(int*)>("cuDeviceGetCount")),
        DeviceGet(l.function<Status(int*, int)>("cuDeviceGet")),
        DeviceGetName(l.function<Status(char*, int, int)>("cuDeviceGetName")),
        DeviceTotalMem(l.function<Status(size_t*, int)>("cuDeviceTotalMem_v2")),
        DeviceGetAttribute(l.function<Status(int*, int, int)>("cuDeviceGetAttribute")),
        DevicePrimaryCtxRetain(l.function<Status(void**, int)>("cuDevicePrimaryCtxRetain")),
        CtxSetCurrent(l.function<Status(void*)>("cuCtxSetCurrent")),
        MemGetInfo(l.function<Status(size_t*, size_t*)>("cuMemGetInfo_v2")),
        MemAlloc(l.function<Status(Address*, size_t)>("cuMemAlloc_v2")),
        MemFree(l.function<Status(Address)>("cuMemFree_v2")),
        MemHostAlloc(l.function<Status(void**, size_t, unsigned)>("cuMemHostAlloc")),
        MemFreeHost(l.function<Status(void*)>("cuMemFreeHost")),
        MemsetD8Async(l.function<Status(Address, unsigned char, size_t, void*)>("cuMemsetD8Async")),
        MemcpyHtoDAsync(l.function<Status(Address, const void*, size_t, void*)>("cuMemcpyHtoDAsync_v2")),
        MemcpyDtoHAsync(l.function<Status(void*, Address, size_t, void*)>("cuMemcpyDtoHAsync_v2")),
        StreamCreate(l.function<Status(void**, unsigned)>("cuStreamCreate")),
        StreamDestroy(l.function<Status(void*)>("cuStreamDestroy_v2")),
        StreamSynchronize(l.function<Status(void*)>("cuStreamSynchronize")),
        StreamWaitEvent(l.function<Status(void*, void*, unsigned)>("cuStreamWaitEvent")),
        StreamBeginCapture(l.function<Status(void*, int)>("cuStreamBeginCapture_v2")),
        StreamEndCapture(l.function<Status(void*, void**)>("cuStreamEndCapture")),
        EventCreate(l.function<Status(void**, unsigned)>("cuEventCreate")),
        EventDestroy(l.function<Status(void*)>("cuEventDestroy_v2")),
        EventRecord(l.function<Status(void*, void*)>("cuEventRecord")),
        EventQuery(l.function<Status(void*)>("cuEventQuery")),
        EventSynchronize(l.function<Status(void*)>("cuEventSynchronize")),
        GraphInstantiate(l.function<Status(void**, void*, unsigned long long)>("cuGraphInstantiateWithFlags")),
        GraphDestroy(l.function<Status(void*)>("cuGraphDestroy")),
        GraphLaunch(l.function<Status(void*, void*)>("cuGraphLaunch")),
        GraphExecDestroy(l.function<Status(void*)>("cuGraphExecDestroy")),
        ModuleLoadData(l.function<Status(void**, const void*)>("cuModuleLoadData")),
        ModuleGetFunction(l.function<Status(void**, void*, const char*)>("cuModuleGetFunction")),
        FuncSetAttribute(l.function<Status(void*, int, int)>("cuFuncSetAttribute")),
        LaunchKernel(l.function<Status(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                                       void*, void**, void**)>("cuLaunchKernel")) {}

  Status (*Init)(unsigned);
  Status (*GetErrorName)(Status, const char**);
  Status (*DriverGetVersion)(int*);
  Status (*DeviceGetCount)(int*);
  Status (*DeviceGet)(int*, int);
  Status (*DeviceGetName)(char*, int, int);
  Status (*DeviceTotalMem)(size_t*, int);
  Status (*DeviceGetAttribute)(int*, int, int);
  Status (*DevicePrimaryCtxRetain)(void**, int);
  Status (*CtxSetCurrent)(void*);
  Status (*MemGetInfo)(size_t*, size_t*);
  Status (*MemAlloc)(Address*, size_t);
  Status (*MemFree)(Address);
  Status (*MemHostAlloc)(void**, size_t, unsigned);
  Status (*MemFreeHost)(void*);
  Status (*MemsetD8Async)(Address, unsigned char, size_t, void*);
  Status (*MemcpyHtoDAsync)(Address, const void*, size_t, void*);
  Status (*MemcpyDtoHAsync)(void*, Address, size_t, void*);
  Status (*StreamCreate)(void**, unsigned);
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
  Status (*GraphInstantiate)(void**, void*, unsigned long long);
  Status (*GraphDestroy)(void*);
  Status (*GraphLaunch)(void*, void*);
  Status (*GraphExecDestroy)(void*);
  Status (*ModuleLoadData)(void**, const void*);
  Status (*ModuleGetFunction)(void**, void*, const char*);
  Status (*FuncSetAttribute)(void*, int, int);
  Status (*LaunchKernel)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**,
                         void**);
};

Address address(const void* data) { return reinterpret_cast<Address>(data); }

class CudaDriver : public Driver {
 public:
  explicit CudaDriver(std::unique_ptr<Library> library) : library_(std::move(library)), cuda_(*library_) {
    check(cuda_.Init(0), "starting the driver");
  }

  DeviceKind kind() const override { return DeviceKind::cuda; }
  const std::string& library() const override { return library_->path(); }
  std::string version() const override {
    int version = 0;
    check(cuda_.DriverGetVersion(&version), "the driver's version");
    return fmt::format("CUDA {}.{}", version / 1000, version % 1000 / 10);
  }
  int num_devices() override {
    int count = 0;
    check(cuda_.DeviceGetCount(&count), "counting devices");
    return count;
  }

  std::string device_name(int device) override {
    char name[256] = {};
    check(cuda_.DeviceGetName(name, sizeof name - 1, handle(device)), "a device's name");
    return name;
  }
  size_t memory_bytes(int device) override {
    size_t bytes = 0;
    check(cuda_.DeviceTotalMem(&bytes, handle(device)), "a device's memory");
    return bytes;
  }
  std::string architecture(int device) override {
    int major = 0;
    int minor = 0;
    check(cuda_.DeviceGetAttribute(&major, capability_major, handle(device)), "a device's capability");
    check(cuda_.DeviceGetAttribute(&minor, capability_minor, handle(device)), "a device's capability");
    return fmt::format("sm_{}{}", major, minor);
  }
  void use(int device) override {
    const auto index = static_cast<size_t>(device);
    if (contexts_.size() <= index) contexts_.resize(index + 1);
    if (contexts_[index] == nullptr) {
      check(cuda_.DevicePrimaryCtxRetain(&contexts_[index], handle(device)), "a device's context");
    }
    current_ = contexts_[index];
    check(cuda_.CtxSetCurrent(current_), "a device's context");
  }
  void* context() override { return current_; }

  size_t free_bytes() override {
    size_t free = 0;
    size_t total = 0;
    check(cuda_.MemGetInfo(&free, &total), "free memory");
    return free;
  }
  void* allocate(size_t bytes) override {
    Address data = 0;
    check(cuda_.MemAlloc(&data, bytes), fmt::format("{} bytes of memory", bytes));
    check(cuda_.MemsetD8Async(data, 0, bytes, nullptr), "clearing memory");
    check(cuda_.StreamSynchronize(nullptr), "clearing memory");
    return reinterpret_cast<void*>(data);
  }
  void release(void* data) noexcept override { cuda_.MemFree(address(data)); }
  void* allocate_host(size_t bytes) override {
    void* data = nullptr;
    check(cuda_.MemHostAlloc(&data, bytes, 0), fmt::format("{} bytes of page-locked host memory", bytes));
    return data;
  }
  void release_host(void* data) noexcept override { cuda_.MemFreeHost(data); }

  StreamHandle make_stream() override {
    StreamHandle stream = nullptr;
    check(cuda_.StreamCreate(&stream, non_blocking), "a stream");
    return stream;
  }
  void release_stream(StreamHandle stream) noexcept override { cuda_.StreamDestroy(stream); }
  void synchronize(StreamHandle stream) override { check(cuda_.StreamSynchronize(stream), "waiting for the device"); }
  void copy_to_device(void* to, const void* from, size_t bytes, StreamHandle stream) override {
    check(cuda_.MemcpyHtoDAsync(address(to), from, bytes, stream), "a copy to the device");
  }
  void copy_to_host(void* to, const void* from, size_t bytes, StreamHandle stream) override {
    check(cuda_.MemcpyDtoHAsync(to, address(from), bytes, stream), "a copy from the device");
  }

  EventHandle make_event() override {
    EventHandle event = nullptr;
    check(cuda_.EventCreate(&event, without_times), "an event");
    return event;
  }
  void release_event(EventHandle event) noexcept override { cuda_.EventDestroy(event); }
  void record(EventHandle event, StreamHandle stream) override {
    check(cuda_.EventRecord(event, stream), "recording an event");
  }
  void hold(StreamHandle stream, EventHandle event) override {
    check(cuda_.StreamWaitEvent(stream, event, 0), "a stream's wait for an event");
  }
  bool done(EventHandle event) override {
    const Status status = cuda_.EventQuery(event);
    if (status != not_ready) check(status, "an event");
    return status == success;
  }
  void wait(EventHandle event) override { check(cuda_.EventSynchronize(event), "waiting for the device"); }

  Module load(const void* image) override {
    Module module = nullptr;
    const Status status = cuda_.ModuleLoadData(&module, image);
    if (status == no_binary_for_gpu || status == invalid_image || status == unsupported_ptx_version) return nullptr;
    check(status, "loading device code");
    return module;
  }
  Function function(Module module, const char* name) override {
    Function function = nullptr;
    check(cuda_.ModuleGetFunction(&function, module, name), name);
    return function;
  }
  void allow_shared(Function function, size_t bytes) override {
    check(cuda_.FuncSetAttribute(function, max_dynamic_shared, static_cast<int>(bytes)),
          fmt::format("{} bytes of shared memory", bytes));
  }
  void launch(Function function, Grid grid, int threads, size_t dynamic_shared_bytes, const void* args,
              StreamHandle stream) override {
    void* parameters[] = {const_cast<void*>(args)};
    check(cuda_.LaunchKernel(function, static_cast<unsigned>(grid.x), static_cast<unsigned>(grid.y), 1,
                             static_cast<unsigned>(threads), 1, 1, static_cast<unsigned>(dynamic_shared_bytes), stream,
                             parameters, nullptr),
          "a launch");
  }

  void begin_recording(StreamHandle stream) override {
    check(cuda_.StreamBeginCapture(stream, recorded_by_thread), "recording launches");
  }
  GraphHandle end_recording(StreamHandle stream) override {
    void* graph = nullptr;
    check(cuda_.StreamEndCapture(stream, &graph), "recording launches");
    GraphHandle ready = nullptr;
    const Status status = cuda_.GraphInstantiate(&ready, graph, 0);
    cuda_.GraphDestroy(graph);
    check(status, "making a graph of recorded launches");
    return ready;
  }
  void run(GraphHandle graph, StreamHandle stream) override { check(cuda_.GraphLaunch(graph, stream), "a graph"); }
  void release_graph(GraphHandle graph) noexcept override { cuda_.GraphExecDestroy(graph); }

 private:
  int handle(int device) const {
    int handle = 0;
    check(cuda_.DeviceGet(&handle, device), fmt::format("device {}", device));
    return handle;
  }
  void check(Status status, std::string_view what) const {
    if (status == success) return;
    const char* name = nullptr;
    if (cuda_.GetErrorName(status, &name) != success || name == nullptr) name = "unknown error";
    throw_error(status == out_of_memory ? ErrorKind::resource : ErrorKind::unavailable, "CUDA: {}: {} ({})", what, name,
                status);
  }

  std::unique_ptr<Library> library_;
  Functions cuda_;
  std::vector<void*> contexts_;
  void* current_ = nullptr;
};

}  // namespace

FoundDriver find_cuda_driver() {
  const char* named = std::getenv("INGOT_CUDA_LIBRARY");
  auto library =
      named != nullptr
          ? std::make_unique<Library>(std::vector<std::string>{named}, std::vector<std::string>{})
          : std::make_unique<Library>(std::vector<std::string>{"libcuda.so.1"},
                                      std::vector<std::string>{"/usr/lib/wsl/lib", "/usr/local/nvidia/lib64"});
  if (!*library) return {nullptr, library->reason()};
  try {
    return {std::make_unique<CudaDriver>(std::move(library)), ""};
  } catch (const Error& error) {
    return {nullptr, error.message()};
  }
}

}  // namespace ingot::gpu
