// An owned file descriptor.
#pragma once

#include <unistd.h>

#include <utility>

namespace ingot {

// Closes the descriptor when destroyed; a negative number means none.
struct Descriptor {
  int fd = -1;
  Descriptor() = default;
  explicit Descriptor(int number) : fd(number) {}
  Descriptor(Descriptor&& other) noexcept : fd(std::exchange(other.fd, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd, other.fd);
    return *this;
  }
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

}  // namespace ingot
