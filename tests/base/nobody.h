// A user to whom permissions apply, for tests that run as root.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

namespace ingot {

// While this lives the process, and what it starts, is nobody where it was root and may be nobody.
class Nobody {
 public:
  Nobody() = default;
  Nobody(const Nobody&) = delete;
  Nobody& operator=(const Nobody&) = delete;
  ~Nobody() {
    if (was_root_) EXPECT_EQ(::seteuid(0), 0);
  }
  bool is_root() const { return ::geteuid() == 0; }

 private:
  bool was_root_ = ::geteuid() == 0 && ::seteuid(65534) == 0;
};

}  // namespace ingot
