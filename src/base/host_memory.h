// A block of host memory, on huge pages where it is as large as one: few page faults when it is first touched.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

namespace ingot {

// Owns uninitialised bytes, aligned to 64, or to 2 MiB where there are so many. Movable.
class HostMemory {
 public:
  HostMemory() = default;
  // ErrorKind::resource, naming `purpose`, when there is no memory.
  HostMemory(size_t bytes, const char* purpose);
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
    void operator()(std::byte* data) const noexcept;
  };
  std::unique_ptr<std::byte, Free> data_;
  size_t bytes_ = 0;
};

}  // namespace ingot
