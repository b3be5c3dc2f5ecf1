// Data on its way between files and devices, through host memory that a device's copies reach while the host goes on.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>

#include "base/function_ref.h"
#include "tensor/device.h"

namespace ingot {

// Owns memory of Device::allocate_host. Movable.
class HostBuffer {
 public:
  HostBuffer() = default;
  HostBuffer(Device& device, size_t bytes);
  HostBuffer(HostBuffer&& other) noexcept;
  HostBuffer& operator=(HostBuffer&& other) noexcept;
  ~HostBuffer();

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  Device* device_ = nullptr;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

// To a device, in pieces: one is filled while the one before is copied.
class Uploader {
 public:
  // Copies come behind everything that the compute stream was given before this.
  Uploader(Device& device, size_t piece_bytes);

  size_t piece_bytes() const { return slots_.front().memory.bytes(); }
  std::byte* piece();                          // memory to fill; waits until the device has read what was in it
  void send(void* destination, size_t bytes);  // the first `bytes` of the last piece()
  void finish();                               // returns when all has arrived

 private:
  struct Slot {
    HostBuffer memory;
    std::unique_ptr<Event> sent;
  };
  Device& device_;
  std::array<Slot, 2> slots_;
  size_t current_ = 1;
};

// Device memory.
struct DeviceRange {
  const void* data = nullptr;
  size_t bytes = 0;
};

// Calls take(range, bytes) with what is in the ranges, as the compute stream leaves it, in order and in pieces of at
// most `piece_bytes`, each while the next is copied. Memory that the host sees is handed over where it is, whole. Not
// called for empty ranges.
void download(Device& device, std::span<const DeviceRange> ranges, size_t piece_bytes,
              FunctionRef<void(size_t, std::span<const std::byte>)> take);

}  // namespace ingot
