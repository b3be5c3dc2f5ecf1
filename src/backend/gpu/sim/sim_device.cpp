#include "backend/gpu/sim/sim_device.h"

#include <fmt/format.h>

#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "base/machine.h"

namespace ingot::gpu::sim {
namespace {

class SimDevice : public GpuDevice {
 public:
  SimDevice(int width, Schedule schedule) : width_(width), schedule_(schedule), executor_(width) {}

  DeviceKind kind() const override { return DeviceKind::sim; }
  std::string name() const override { return fmt::format("sim{}", width_); }
  std::string arch() const override { return name(); }
  size_t memory_bytes() const override { return total_memory(); }
  size_t memory_available() const override { return available_memory(); }
  int warp_width() const override { return width_; }

  // Of exactly this size, so that the address sanitizer sees what kernels read or write past it.
  void* allocate(size_t bytes) override {
    void* data = nullptr;
    if (posix_memalign(&data, 64, bytes > 0 ? bytes : 1) != 0) {
      throw_error(ErrorKind::resource, "{}: {} bytes of memory are needed", name(), bytes);
    }
    std::memset(data, 0, bytes);
    return data;
  }
  void release(void* data, size_t) noexcept override { std::free(data); }

  void copy_from_host(void* destination, const void* source, size_t bytes) override {
    if (bytes > 0) std::memcpy(destination, source, bytes);
  }
  void copy_to_host(void* destination, const void* source, size_t bytes) override {
    if (bytes > 0) std::memcpy(destination, source, bytes);
  }

  void launch(const KernelInfo& kernel, const void* args, Grid grid, size_t dynamic_shared_bytes) override {
    executor_.run(kernel, args, grid, dynamic_shared_bytes, schedule_);
  }

 private:
  const int width_;
  const Schedule schedule_;
  Executor executor_;
};

}  // namespace

std::unique_ptr<GpuDevice> make_device(int width, Schedule schedule) {
  if (width != 32 && width != 64) throw_error(ErrorKind::internal, "a warp of {} lanes", width);
  return std::make_unique<SimDevice>(width, schedule);
}

}  // namespace ingot::gpu::sim
