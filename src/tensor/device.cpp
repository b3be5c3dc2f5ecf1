#include "tensor/device.h"

#include <cstdlib>

#include "base/error.h"

namespace ingot {

namespace {

// Of a device whose work is done when it is given.
class PastEvent : public Event {
 public:
  void record(Stream) override {}
  void hold(Stream) override {}
  bool done() override { return true; }
  void wait() override {}
};

constexpr size_t alignment = 64;

}  // namespace

const char* name(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::cpu: return "cpu";
    case DeviceKind::cuda: return "cuda";
    case DeviceKind::hip: return "hip";
    case DeviceKind::sim: return "sim";
  }
  return "?";
}

void* Device::allocate_host(size_t bytes) {
  if (bytes == 0) return nullptr;
  void* data = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (data == nullptr) throw_error(ErrorKind::resource, "{} bytes of host memory are needed", bytes);
  return data;
}

void Device::release_host(void* data, size_t) noexcept { std::free(data); }

void Device::start_copy_from_host(Stream, void* destination, const void* source, size_t bytes) {
  copy_from_host(destination, source, bytes);
}

void Device::start_copy_to_host(Stream, void* destination, const void* source, size_t bytes) {
  copy_to_host(destination, source, bytes);
}

std::unique_ptr<Event> Device::make_event() { return std::make_unique<PastEvent>(); }

std::unique_ptr<Replay> Device::record(FunctionRef<void()>) {
  throw_error(ErrorKind::internal, "{} records no work", name());
}

}  // namespace ingot
