// CUDA's driver API.
#include "backend/gpu/runtime/module_driver.h"

namespace ingot::gpu {
namespace {

constexpr int capability_major = 75;  // CUdevice_attribute
constexpr int capability_minor = 76;
constexpr int max_dynamic_shared = 8;  // CUfunction_attribute

class CudaDriver : public ModuleDriver {
 public:
  explicit CudaDriver(std::unique_ptr<SharedLibrary> library) : ModuleDriver("CUDA", std::move(library)) {
    bind(api_.Init, "cuInit");
    bind(api_.GetVersion, "cuDriverGetVersion");
    bind(api_.GetDeviceCount, "cuDeviceGetCount");
    bind(api_.DeviceGet, "cuDeviceGet");
    bind(api_.DeviceGetName, "cuDeviceGetName");
    bind(api_.DeviceTotalMem, "cuDeviceTotalMem_v2");
    bind(api_.DeviceGetPCIBusId, "cuDeviceGetPCIBusId");
    bind(api_.MemGetInfo, "cuMemGetInfo_v2");
    bind(api_.MemAlloc, "cuMemAlloc_v2");
    bind(api_.MemFree, "cuMemFree_v2");
    bind(api_.MemHostAlloc, "cuMemHostAlloc");
    bind(api_.MemFreeHost, "cuMemFreeHost");
    bind(api_.MemsetD8Async, "cuMemsetD8Async");
    bind(api_.MemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2");
    bind(api_.MemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2");
    bind(api_.StreamPriorityRange, "cuCtxGetStreamPriorityRange");
    bind(api_.StreamCreate, "cuStreamCreateWithPriority");
    bind(api_.StreamDestroy, "cuStreamDestroy_v2");
    bind(api_.StreamSynchronize, "cuStreamSynchronize");
    bind(api_.StreamWaitEvent, "cuStreamWaitEvent");
    bind(api_.StreamBeginCapture, "cuStreamBeginCapture_v2");
    bind(api_.StreamEndCapture, "cuStreamEndCapture");
    bind(api_.EventCreate, "cuEventCreate");
    bind(api_.EventDestroy, "cuEventDestroy_v2");
    bind(api_.EventRecord, "cuEventRecord");
    bind(api_.EventQuery, "cuEventQuery");
    bind(api_.EventSynchronize, "cuEventSynchronize");
    bind(api_.GraphGetNodes, "cuGraphGetNodes");
    bind(api_.GraphInstantiate, "cuGraphInstantiateWithFlags");
    bind(api_.GraphDestroy, "cuGraphDestroy");
    bind(api_.GraphLaunch, "cuGraphLaunch");
    bind(api_.GraphExecDestroy, "cuGraphExecDestroy");
    bind(api_.ModuleLoadData, "cuModuleLoadData");
    bind(api_.ModuleGetFunction, "cuModuleGetFunction");
    bind(api_.LaunchKernel, "cuLaunchKernel");
    bind(get_error_name_, "cuGetErrorName");
    bind(device_attribute_, "cuDeviceGetAttribute");
    bind(retain_context_, "cuDevicePrimaryCtxRetain");
    bind(set_context_, "cuCtxSetCurrent");
    bind(set_attribute_, "cuFuncSetAttribute");
  }

  DeviceKind kind() const override { return DeviceKind::cuda; }
  std::string version() const override {
    const int version = version_number("the driver's version");
    return fmt::format("CUDA {}.{}", version / 1000, version % 1000 / 10);
  }
  std::string architecture(int device) override {
    int major = 0;
    int minor = 0;
    check(device_attribute_(&major, capability_major, handle(device)), "a device's capability");
    check(device_attribute_(&minor, capability_minor, handle(device)), "a device's capability");
    return fmt::format("sm_{}{}", major, minor);
  }
  void use(int device) override {
    const auto index = static_cast<size_t>(device);
    if (contexts_.size() <= index) contexts_.resize(index + 1);
    if (contexts_[index] == nullptr) check(retain_context_(&contexts_[index], handle(device)), "a device's context");
    current_ = contexts_[index];
    check(set_context_(current_), "a device's context");
  }
  void* context() override { return current_; }
  void set_max_dynamic_shared(Function function, size_t bytes) override {
    check(set_attribute_(function, max_dynamic_shared, static_cast<int>(bytes)),
          fmt::format("{} bytes of shared memory", bytes));
  }

 private:
  const char* error_name(Status status) const override {
    const char* name = nullptr;
    return get_error_name_(status, &name) == success ? name : nullptr;
  }

  Status (*get_error_name_)(Status, const char**) = nullptr;
  Status (*device_attribute_)(int*, int, int) = nullptr;
  Status (*retain_context_)(void**, int) = nullptr;
  Status (*set_context_)(void*) = nullptr;
  Status (*set_attribute_)(void*, int, int) = nullptr;
  std::vector<void*> contexts_;
  void* current_ = nullptr;
};

}  // namespace

FoundDriver find_cuda_driver() {
  return find_driver<CudaDriver>("INGOT_CUDA_LIBRARY", {"libcuda.so.1"},
                                 {"/usr/lib/wsl/lib", "/usr/local/nvidia/lib64"});
}

}  // namespace ingot::gpu
