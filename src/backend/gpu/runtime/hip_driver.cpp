// HIP's module API.
#include "backend/gpu/runtime/module_driver.h"

namespace ingot::gpu {
namespace {

class HipDriver : public ModuleDriver {
 public:
  explicit HipDriver(std::unique_ptr<SharedLibrary> library) : ModuleDriver("HIP", std::move(library)) {
    bind(api_.Init, "hipInit");
    bind(api_.GetVersion, "hipRuntimeGetVersion");
    bind(api_.GetDeviceCount, "hipGetDeviceCount");
    bind(api_.DeviceGet, "hipDeviceGet");
    bind(api_.DeviceGetName, "hipDeviceGetName");
    bind(api_.DeviceTotalMem, "hipDeviceTotalMem");
    bind(api_.DeviceGetPCIBusId, "hipDeviceGetPCIBusId");
    bind(api_.MemGetInfo, "hipMemGetInfo");
    bind(api_.MemAlloc, "hipMalloc");
    bind(api_.MemFree, "hipFree");
    bind(api_.MemHostAlloc, "hipHostMalloc");
    bind(api_.MemFreeHost, "hipHostFree");
    bind(api_.MemsetD8Async, "hipMemsetD8Async");
    bind(api_.MemcpyHtoDAsync, "hipMemcpyHtoDAsync");
    bind(api_.MemcpyDtoHAsync, "hipMemcpyDtoHAsync");
    bind(api_.StreamPriorityRange, "hipDeviceGetStreamPriorityRange");
    bind(api_.StreamCreate, "hipStreamCreateWithPriority");
    bind(api_.StreamDestroy, "hipStreamDestroy");
    bind(api_.StreamSynchronize, "hipStreamSynchronize");
    bind(api_.StreamWaitEvent, "hipStreamWaitEvent");
    bind(api_.StreamBeginCapture, "hipStreamBeginCapture");
    bind(api_.StreamEndCapture, "hipStreamEndCapture");
    bind(api_.EventCreate, "hipEventCreateWithFlags");
    bind(api_.EventDestroy, "hipEventDestroy");
    bind(api_.EventRecord, "hipEventRecord");
    bind(api_.EventQuery, "hipEventQuery");
    bind(api_.EventSynchronize, "hipEventSynchronize");
    bind(api_.GraphGetNodes, "hipGraphGetNodes");
    bind(api_.GraphInstantiate, "hipGraphInstantiateWithFlags");
    bind(api_.GraphDestroy, "hipGraphDestroy");
    bind(api_.GraphLaunch, "hipGraphLaunch");
    bind(api_.GraphExecDestroy, "hipGraphExecDestroy");
    bind(api_.ModuleLoadData, "hipModuleLoadData");
    bind(api_.ModuleGetFunction, "hipModuleGetFunction");
    bind(api_.LaunchKernel, "hipModuleLaunchKernel");
    bind(get_error_name_, "hipGetErrorName");
    bind(set_device_, "hipSetDevice");
    // ROCm 6 changed the struct and gave it a function of its own.
    const bool changed = has("hipGetDevicePropertiesR0600");
    bind(get_properties_, changed ? "hipGetDevicePropertiesR0600" : "hipGetDeviceProperties");
  }

  DeviceKind kind() const override { return DeviceKind::hip; }
  std::string version() const override {
    const int version = version_number("the runtime's version");
    return fmt::format("HIP {}.{}.{}", version / 10'000'000, version / 100'000 % 100, version % 100'000);
  }
  // hipDeviceProp_t::gcnArchName ("gfx90a:sramecc+:xnack-") without its features. The place of that text in the struct
  // depends on the version of ROCm; it is the only one behind the name that begins like this.
  std::string architecture(int device) override {
    std::vector<char> properties(max_properties_bytes);
    check(get_properties_(properties.data(), device), "a device's properties");
    const std::string_view all(properties.data() + name_bytes, properties.size() - name_bytes);
    const size_t begin = all.find("gfx");
    if (begin == std::string_view::npos) {
      throw_hint(ErrorKind::unavailable, "use ROCm 5 or later", "HIP: the runtime reports no architecture of device {}",
                 device);
    }
    return std::string(
        all.substr(begin, all.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-", begin) - begin));
  }
  void use(int device) override { check(set_device_(device), fmt::format("device {}", device)); }
  void* context() override { return nullptr; }
  void set_max_dynamic_shared(Function, size_t) override {}  // a kernel may always use all shared memory of a workgroup

 private:
  static constexpr size_t name_bytes = 256;                         // hipDeviceProp_t begins with char name[256]
  static constexpr size_t max_properties_bytes = size_t{64} << 10;  // ROCm 6: 1,472

  const char* error_name(Status status) const override { return get_error_name_(status); }

  const char* (*get_error_name_)(Status) = nullptr;
  Status (*set_device_)(int) = nullptr;
  Status (*get_properties_)(void*, int) = nullptr;
};

}  // namespace

FoundDriver find_hip_driver() {
  // The names in ROCm 7, 6 and 5; the last one is Debian 12's.
  return find_driver<HipDriver>("INGOT_HIP_LIBRARY",
                                {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"},
                                {"/opt/rocm/lib", "/opt/rocm/lib64"});
}

}  // namespace ingot::gpu
