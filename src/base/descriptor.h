// A file descriptor for the length of a scope.
#pragma once

#include <unistd.h>

namespace ingot {

// Owns it; a negative number is none.
struct Descriptor {
  int fd = -1;
  explicit Descriptor(int number) : fd(number) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

}  // namespace ingot
