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

struct Functions {
  explicit Functions(const Library& l)
      : Init(l.function<Status(unsigned)>("hipInit")),
        GetErrorName(l.function<const char*(Status)>("hipGetErrorName")),
        RuntimeGetVersion(l.function<Status(int*)>("hipRuntimeGetVersion")),
        GetDeviceCount(l.function<Status(int*)>("hipGetDeviceCount")),
        DeviceGetName(l.function<Status(char*, int, int)>("hipDeviceGetName")),
        DeviceTotalMem(l.function<Status(size_t*, int)>("hipDeviceTotalMem")),
        SetDevice(l.function<Status(int)>("hipSetDevice")),
        DeviceSynchronize(l.function<Status()>("hipDeviceSynchronize")),
        MemGetInfo(l.function<Status(size_t*, size_t*)>("hipMemGetInfo")),
        Malloc(l.function<Status(void**, size_t)>("hipMalloc")),
        Free(l.function<Status(void*)>("hipFree")),
        Memset(l.function<Status(void*, int, size_t)>("hipMemset")),
        MemcpyHtoD(l.function<Status(void*, const void*, size_t)>("hipMemcpyHtoD")),
        MemcpyDtoH(l.function<Status(void*, const void*, size_t)>("hipMemcpyDtoH")),
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
  Status (*DeviceSynchronize)();
  Status (*MemGetInfo)(size_t*, size_t*);
  Status (*Malloc)(void**, size_t);
  Status (*Free)(void*);
  Status (*Memset)(void*, int, size_t);
  Status (*MemcpyHtoD)(void*, const void*, size_t);
  Status (*MemcpyDtoH)(void*, const void*, size_t);
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

  size_t free_bytes() override {
    size_t free = 0;
    size_t total = 0;
    check(hip_.MemGetInfo(&free, &total), "free memory");
    return free;
  }
  void* allocate(size_t bytes) override {
    void* data = nullptr;
    check(hip_.Malloc(&data, bytes), fmt::format("{} bytes of memory", bytes));
    check(hip_.Memset(data, 0, bytes), "clearing memory");
    return data;
  }
  void release(void* data) noexcept override { hip_.Free(data); }
  void copy_to_device(void* to, const void* from, size_t bytes) override {
    check(hip_.MemcpyHtoD(to, from, bytes), "a copy to the device");
  }
  void copy_to_host(void* to, const void* from, size_t bytes) override {
    check(hip_.MemcpyDtoH(to, from, bytes), "a copy from the device");
  }

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
  void launch(Function function, Grid grid, int threads, size_t dynamic_shared_bytes, const void* args) override {
    void* parameters[] = {const_cast<void*>(args)};
    check(hip_.ModuleLaunchKernel(function, static_cast<unsigned>(grid.x), static_cast<unsigned>(grid.y), 1,
                                  static_cast<unsigned>(threads), 1, 1, static_cast<unsigned>(dynamic_shared_bytes),
                                  nullptr, parameters, nullptr),
          "a launch");
  }
  void synchronize() override { check(hip_.DeviceSynchronize(), "waiting for the device"); }

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
