#include "tensor/staging.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace ingot {

PinnedBuffer::PinnedBuffer(Device& device, size_t bytes)
    : device_(&device),
      data_(static_cast<std::byte*>(bytes > 0 ? device.allocate_pinned(bytes) : nullptr)),
      bytes_(bytes) {}

PinnedBuffer::PinnedBuffer(PinnedBuffer&& other) noexcept
    : device_(other.device_), data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

PinnedBuffer& PinnedBuffer::operator=(PinnedBuffer&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

PinnedBuffer::~PinnedBuffer() {
  if (data_) device_->release_host(data_, bytes_);
}

namespace {

// Makes the copy stream wait for all work submitted to the compute stream so far.
void follow_compute(Device& device) {
  const std::unique_ptr<Event> event = device.make_event();
  event->record(Stream::compute);
  event->wait_on(Stream::copy);
}

}  // namespace

Uploader::Uploader(Device& device, size_t chunk_bytes) : device_(device) {
  for (Slot& slot : slots_) slot = {PinnedBuffer(device, chunk_bytes), device.make_event()};
  follow_compute(device);
}

std::byte* Uploader::next_chunk() {
  current_ = 1 - current_;
  slots_[current_].sent->wait();
  return slots_[current_].memory.data();
}

void Uploader::send(void* destination, size_t bytes, size_t from) {
  Slot& slot = slots_[current_];
  device_.copy_from_host_async(Stream::copy, destination, slot.memory.data() + from, bytes);
  slot.sent->record(Stream::copy);
}

void Uploader::finish() {
  for (Slot& slot : slots_) slot.sent->wait();
}

void download(Device& device, std::span<const DeviceRange> ranges, size_t chunk_bytes,
              FunctionRef<void(size_t, std::span<const std::byte>)> consume) {
  if (device.host_visible()) {
    for (size_t r = 0; r < ranges.size(); ++r) {
      if (ranges[r].bytes > 0) consume(r, {static_cast<const std::byte*>(ranges[r].data), ranges[r].bytes});
    }
    return;
  }
  struct Chunk {
    size_t range;
    const std::byte* data;
    size_t bytes;
  };
  std::vector<Chunk> chunks;
  size_t largest = 0;
  for (size_t r = 0; r < ranges.size(); ++r) {
    const auto* data = static_cast<const std::byte*>(ranges[r].data);
    if (ranges[r].on_host) {
      if (ranges[r].bytes > 0) chunks.push_back({r, data, ranges[r].bytes});
      continue;
    }
    for (size_t done = 0; done < ranges[r].bytes; done += chunk_bytes) {
      chunks.push_back({r, data + done, std::min(chunk_bytes, ranges[r].bytes - done)});
      largest = std::max(largest, chunks.back().bytes);
    }
  }
  struct Slot {
    PinnedBuffer memory;
    std::unique_ptr<Event> arrived;
  };
  std::array<Slot, 2> slots;
  for (Slot& slot : slots) slot = {PinnedBuffer(device, largest), device.make_event()};
  follow_compute(device);
  const auto start_copy = [&](size_t i) {
    if (i >= chunks.size() || ranges[chunks[i].range].on_host) return;
    Slot& slot = slots[i % slots.size()];
    device.copy_to_host_async(Stream::copy, slot.memory.data(), chunks[i].data, chunks[i].bytes);
    slot.arrived->record(Stream::copy);
  };
  start_copy(0);
  for (size_t i = 0; i < chunks.size(); ++i) {
    start_copy(i + 1);  // into the slot of chunk i - 1, which has been consumed
    if (ranges[chunks[i].range].on_host) {
      consume(chunks[i].range, {chunks[i].data, chunks[i].bytes});
      continue;
    }
    Slot& slot = slots[i % slots.size()];
    slot.arrived->wait();
    consume(chunks[i].range, {slot.memory.data(), chunks[i].bytes});
  }
}

}  // namespace ingot
