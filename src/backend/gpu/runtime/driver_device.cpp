#include "backend/gpu/runtime/driver_device.h"

#include <fmt/format.h>

#include <unordered_map>

#include "backend/gpu/runtime/code_objects.h"
#include "base/error.h"

namespace ingot::gpu {
namespace {

constexpr size_t shared_without_asking = size_t{48} << 10;

class DriverDevice : public GpuDevice {
 public:
  DriverDevice(std::shared_ptr<Driver> driver, int index) : driver_(std::move(driver)), index_(index) {
    const int count = driver_->num_devices();
    if (index < 0 || index >= count) {
      throw_hint(ErrorKind::unavailable, "`ingot devices` lists what there is",
                 "device '{}': there are {} of this kind", name(), count);
    }
    driver_->use(index_);
    if (code_objects().empty()) {
      throw_hint(ErrorKind::unavailable, "build with ./run build --gpu all", "this build has no code for GPUs");
    }
    const std::string_view any = code_objects().front().file;
    code_architecture_ = find_code(any, modules_[any]);
    architecture_ = driver_->architecture(index_);
    if (architecture_.empty()) architecture_ = code_architecture_;
  }

  DeviceKind kind() const override { return driver_->kind(); }
  std::string name() const override { return fmt::format("{}:{}", ingot::name(kind()), index_); }
  std::string arch() const override { return architecture_; }
  size_t memory_bytes() const override { return driver_->memory_bytes(index_); }
  size_t memory_available() const override {
    driver_->use(index_);
    return driver_->free_bytes();
  }
  int warp_width() const override { return code_architecture_.starts_with("gfx9") ? 64 : 32; }

  void* allocate(size_t bytes) override {
    if (bytes == 0) return nullptr;
    driver_->use(index_);
    return driver_->allocate(bytes);
  }
  void release(void* data, size_t) noexcept override {
    if (data != nullptr) driver_->release(data);
  }
  void copy_from_host(void* destination, const void* source, size_t bytes) override {
    if (bytes == 0) return;
    driver_->use(index_);
    after_launches([&] { driver_->copy_to_device(destination, source, bytes); });
  }
  void copy_to_host(void* destination, const void* source, size_t bytes) override {
    if (bytes == 0) return;
    driver_->use(index_);
    after_launches([&] { driver_->copy_to_host(destination, source, bytes); });
  }

  void launch(const KernelInfo& kernel, const void* args, Grid grid, size_t dynamic_shared_bytes) override {
    driver_->use(index_);
    Loaded& loaded = load(kernel);
    if (dynamic_shared_bytes > loaded.shared_allowed) {
      driver_->allow_shared(loaded.function, dynamic_shared_bytes);
      loaded.shared_allowed = dynamic_shared_bytes;
    }
    try {
      driver_->launch(loaded.function, grid, kernel.threads, dynamic_shared_bytes, args);
    } catch (const Error& error) {
      throw_error(error.kind(), "kernel {} on {}, grid {} x {}: {}", kernel.name, name(), grid.x, grid.y,
                  error.message());
    }
    last_kernel_ = kernel.name;
  }

 private:
  struct Loaded {
    Driver::Function function = nullptr;
    size_t shared_allowed = shared_without_asking;
  };

  // Errors of kernels come out of the next call that waits for them.
  template <class Copy>
  void after_launches(Copy copy) {
    try {
      copy();
    } catch (const Error& error) {
      throw_error(error.kind(), "{}: {}; the last kernel started before was {}", name(), error.message(),
                  last_kernel_.empty() ? "none" : last_kernel_);
    }
  }

  Loaded& load(const KernelInfo& kernel) {
    const auto [at, added] = kernels_.try_emplace(kernel.name);
    if (added) {
      Driver::Module& module = modules_[kernel.file];
      if (module == nullptr) find_code(kernel.file, module);
      at->second.function = driver_->function(module, kernel.name);
    }
    return at->second;
  }

  // Loads the code of a source file that this device runs; returns the architecture it was made for.
  std::string find_code(std::string_view file, Driver::Module& module) {
    std::string there;
    for (const CodeObject& code : code_objects()) {
      const bool cuda = code.architecture == "cuda";
      if (code.file != file || cuda != (kind() == DeviceKind::cuda)) continue;
      there += fmt::format("{}{}", there.empty() ? "" : ", ", code.architecture);
      module = driver_->load(code.begin);
      if (module != nullptr) return std::string(code.architecture);
    }
    const std::string architecture = driver_->architecture(index_);
    throw_error(ErrorKind::unavailable, "{} ({}{}{}): this build has no code of {} for it; it has: {}", name(),
                driver_->device_name(index_), architecture.empty() ? "" : ", ", architecture, file,
                there.empty() ? "none" : there);
  }

  std::shared_ptr<Driver> driver_;
  int index_;
  std::string architecture_;
  std::string code_architecture_;
  std::unordered_map<std::string_view, Driver::Module> modules_;
  std::unordered_map<std::string_view, Loaded> kernels_;
  std::string last_kernel_;
};

}  // namespace

std::unique_ptr<GpuDevice> make_device(std::shared_ptr<Driver> driver, int index) {
  return std::make_unique<DriverDevice>(std::move(driver), index);
}

}  // namespace ingot::gpu
