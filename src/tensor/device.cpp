#include "tensor/device.h"

#include <cstdlib>
#include <cstring>

#include "base/error.h"

namespace ingot {

namespace {

// For devices whose work is done when the call that submits it returns.
class PastEvent : public Event {
 public:
  void record(Stream) override {}
  void wait_on(Stream) override {}
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

void* Device::allocate_pinned(size_t bytes) {
  if (bytes == 0) return nullptr;
  void* data = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (data == nullptr) throw_error(ErrorKind::resource, "cannot allocate {} bytes of host memory", bytes);
  return data;
}

void Device::release_host(void* data, size_t) noexcept { std::free(data); }

void Device::copy_from_host_async(Stream, void* destination, const void* source, size_t bytes) {
  copy_from_host(destination, source, bytes);
}

void Device::copy_to_host_async(Stream, void* destination, const void* source, size_t bytes) {
  copy_to_host(destination, source, bytes);
}

std::unique_ptr<Event> Device::make_event() { return std::make_unique<PastEvent>(); }

void Device::fill_zero(void* data, size_t bytes) {
  if (bytes > 0) std::memset(data, 0, bytes);
}

std::unique_ptr<RecordedGraph> Device::record(FunctionRef<void()>) {
  throw_error(ErrorKind::internal, "{} does not support recording work", name());
}

}  // namespace ingot
