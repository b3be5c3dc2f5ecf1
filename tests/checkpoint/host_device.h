// A device in host memory that counts allocations, and can report its memory as not accessible to the host, like a
// GPU's.
#pragma once

#include <cstdlib>
#include <cstring>
#include <string>

#include "base/error.h"
#include "tensor/device.h"

namespace ingot {

class HostDevice : public Device {
 public:
  explicit HostDevice(bool visible = true) : visible_(visible) {}
  DeviceKind kind() const override { return DeviceKind::cpu; }
  std::string name() const override { return "host"; }
  std::string arch() const override { return "plain"; }
  size_t memory_bytes() const override { return size_t{1} << 40; }
  size_t memory_available() const override { return size_t{1} << 40; }
  void* allocate(size_t bytes) override {
    void* data = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (data == nullptr) throw_error(ErrorKind::resource, "{} bytes", bytes);
    std::memset(data, 0, bytes);
    ++num_allocations;
    allocated += bytes;
    return data;
  }
  void release(void* data, size_t bytes) noexcept override {
    std::free(data);
    allocated -= bytes;
  }
  void copy_from_host(void* to, const void* from, size_t bytes) override {
    std::memcpy(to, from, bytes);
    copied += bytes;
  }
  void copy_to_host(void* to, const void* from, size_t bytes) override { std::memcpy(to, from, bytes); }
  bool host_visible() const override { return visible_; }

  int num_allocations = 0;
  size_t allocated = 0;
  size_t copied = 0;

 private:
  bool visible_;
};

}  // namespace ingot
