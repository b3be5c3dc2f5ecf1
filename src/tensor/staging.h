// Staged transfers between files and devices, through host memory that a device can copy while the host continues.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>

#include "base/function_ref.h"
#include "tensor/device.h"

namespace ingot {

// Owns memory of Device::allocate_pinned. Movable.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  PinnedBuffer(Device& device, size_t bytes);
  PinnedBuffer(PinnedBuffer&& other) noexcept;
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept;
  ~PinnedBuffer();

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  Device* device_ = nullptr;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

// Uploads to a device in chunks, double-buffered: the host fills one chunk while the previous one is copied.
class Uploader {
 public:
  // The copies run after all work that was submitted to the compute stream before this constructor.
  Uploader(Device& device, size_t chunk_bytes);

  size_t chunk_bytes() const { return slots_.front().memory.bytes(); }
  std::byte* next_chunk();  // memory to fill; waits until the device has read its previous contents
  // Starts the copy of bytes [from, from + bytes) of the last next_chunk().
  void send(void* destination, size_t bytes, size_t from = 0);
  void finish();  // returns when all copies are done

 private:
  struct Slot {
    PinnedBuffer memory;
    std::unique_ptr<Event> sent;
  };
  Device& device_;
  std::array<Slot, 2> slots_;
  size_t current_ = 1;
};

// A range of device memory.
struct DeviceRange {
  const void* data = nullptr;
  size_t bytes = 0;
  bool on_host = false;  // it is host memory instead
};

// Calls consume(range index, bytes) with the contents of the ranges after all work submitted to the compute stream, in
// order and in chunks of at most `chunk_bytes`; the next chunk is copied meanwhile. A range in host-visible memory is
// passed in place and whole, as is one on the host. Not called for empty ranges.
void download(Device& device, std::span<const DeviceRange> ranges, size_t chunk_bytes,
              FunctionRef<void(size_t, std::span<const std::byte>)> consume);

}  // namespace ingot
