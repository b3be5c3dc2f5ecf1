// A block of host memory.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

namespace ingot {

inline constexpr size_t huge_page = size_t{2} << 20;  // bytes

// Asks the system for huge pages if at least one fits; the system may ignore this.
void advise_huge_pages(void* data, size_t bytes) noexcept;

// Returns memory from mmap to the system. A process at its limit of mappings cannot split a mapping (adjacent ones
// count as one): the pages are then freed and their addresses stay reserved. Any other failure is a bug in Ingot: the
// program ends with the reason.
void unmap(void* data, size_t bytes) noexcept;

// Owns uninitialised bytes, aligned to 64. Movable.
class HostMemory {
 public:
  // Huge pages, for blocks of at least 2 MiB, speed up memory that is read repeatedly. The system may have to make room
  // for them when they are first touched, which took four times as long as for small ones on a machine whose memory was
  // full of cached files. Blocks of small pages from 32 KiB are mapped, so that they return to the system when freed:
  // on the heap, a longer-lived allocation after them would retain their memory.
  enum class Pages { small, huge };

  HostMemory() = default;
  // ErrorKind::resource, naming `purpose`, when there is no memory.
  HostMemory(size_t bytes, Pages pages, const char* purpose);
  HostMemory(HostMemory&& other) noexcept : data_(std::move(other.data_)), bytes_(std::exchange(other.bytes_, 0)) {}
  HostMemory& operator=(HostMemory&& other) noexcept {
    data_ = std::move(other.data_);
    bytes_ = std::exchange(other.bytes_, 0);
    return *this;
  }
  ~HostMemory() = default;

  std::byte* data() const { return data_.get(); }
  size_t bytes() const { return bytes_; }

 private:
  struct Free {
    size_t mapped;  // bytes of the mapping; 0: on the heap
    Free() : mapped(0) {}
    explicit Free(size_t bytes) : mapped(bytes) {}
    void operator()(std::byte* data) const noexcept;
  };
  std::unique_ptr<std::byte, Free> data_;
  size_t bytes_ = 0;
};

}  // namespace ingot
