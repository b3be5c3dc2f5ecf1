// A CPU device that counts the bytes it is asked for. On request it refuses allocations above a limit, or reports that
// the host cannot access its memory.
#pragma once

#include <limits>
#include <memory>
#include <string>

#include "backend/cpu/cpu_device.h"
#include "base/error.h"

namespace ingot {

class CountingDevice : public Device {
 public:
  explicit CountingDevice(bool visible = true) : visible_(visible) {}

  DeviceKind kind() const override { return inner_->kind(); }
  std::string name() const override { return inner_->name(); }
  std::string arch() const override { return inner_->arch(); }
  size_t memory_bytes() const override { return inner_->memory_bytes(); }
  size_t memory_available() const override { return inner_->memory_available(); }
  void* allocate(size_t bytes) override {
    if (bytes > max_) throw_error(ErrorKind::resource, "{} bytes are more than {}", bytes, max_);
    allocated_ += bytes;
    return inner_->allocate(bytes);
  }
  void release(void* data, size_t bytes) noexcept override { inner_->release(data, bytes); }
  void* allocate_pinned(size_t bytes) override {
    pinned_ += bytes;
    return inner_->allocate_pinned(bytes);
  }
  void release_host(void* data, size_t bytes) noexcept override { inner_->release_host(data, bytes); }
  void copy_from_host(void* to, const void* from, size_t bytes) override { inner_->copy_from_host(to, from, bytes); }
  void copy_to_host(void* to, const void* from, size_t bytes) override { inner_->copy_to_host(to, from, bytes); }
  bool host_visible() const override { return visible_; }

  size_t allocated() const { return allocated_; }
  size_t pinned() const { return pinned_; }
  void limit(size_t most) { max_ = most; }

 private:
  std::unique_ptr<Device> inner_ = cpu::make_device();
  bool visible_;
  size_t allocated_ = 0, pinned_ = 0, max_ = std::numeric_limits<size_t>::max();
};

}  // namespace ingot
