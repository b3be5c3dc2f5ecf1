// A block of host memory.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

namespace ingot {

inline constexpr size_t huge_page = size_t{2} << 20;  // bytes

// Asks the system for huge pages where there is room for one; what it makes of that is its own.
void advise_huge_pages(void* data, size_t bytes) noexcept;

// Gives pages that mmap gave back to the system. A process that has as many mappings as it may cannot cut one in two
// (neighbours are one): then the pages are given back and their addresses stay taken. What else may be refused is a
// mistake in Ingot: the program ends with the reason.
void unmap(void* data, size_t bytes) noexcept;

// Owns uninitialised bytes, aligned to 64. Movable.
class HostMemory {
 public:
  // Huge ones, where there are at least 2 MiB, make memory that is read again and again faster; the system may have to
  // clear the way for them when they are first touched, which took four times as long as small ones on a machine whose
  // memory was full of cached files. Blocks of small ones, where they have 32 KiB, are the system's again when they
  // end: on the heap what is allocated between them and lives longer would keep them.
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
    size_t mapped;  // bytes; 0: of the heap
    Free() : mapped(0) {}
    explicit Free(size_t bytes) : mapped(bytes) {}
    void operator()(std::byte* data) const noexcept;
  };
  std::unique_ptr<std::byte, Free> data_;
  size_t bytes_ = 0;
};

}  // namespace ingot
