// The small device interface that everything above the backends sees. One object a device, made by its backend and
// owned by `app`; handed down by reference, never global.
#pragma once

#include <cstddef>
#include <string>

namespace ingot {

enum class DeviceKind { cpu, cuda, hip, sim };

const char* name(DeviceKind kind);  // "cpu", "cuda", "hip", "sim"

class Device {
 public:
  virtual ~Device() = default;

  virtual DeviceKind kind() const = 0;
  virtual std::string name() const = 0;         // as the user writes it: "cpu", "cuda:0", "sim32"
  virtual std::string arch() const = 0;         // what decides rounding: "avx512", "sm_90", "gfx942"
  virtual size_t memory_bytes() const = 0;      // in all
  virtual size_t memory_available() const = 0;  // now, for a new allocation

  // Zero-filled memory, 64-byte aligned. ErrorKind::resource, with what is needed and what is there, when it fails.
  virtual void* allocate(size_t bytes) = 0;
  virtual void release(void* data, size_t bytes) noexcept = 0;

  // Copies between host and device memory, done when the call returns.
  virtual void copy_from_host(void* device_destination, const void* host_source, size_t bytes) = 0;
  virtual void copy_to_host(void* host_destination, const void* device_source, size_t bytes) = 0;
  // True when the host may read and write this device's memory directly.
  virtual bool host_visible() const = 0;
};

}  // namespace ingot
