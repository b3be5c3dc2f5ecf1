// For tests that run as root: a user to whom permissions apply, and a folder that such a user may not enter.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <utility>

namespace ingot {

// During its lifetime, a process that runs as root becomes the user nobody (where it may). The real user id changes
// with the effective one: a program started while they differ cannot read its own /proc/self, which sanitizers need.
class Nobody {
 public:
  Nobody() = default;
  Nobody(const Nobody&) = delete;
  Nobody& operator=(const Nobody&) = delete;
  ~Nobody() {
    if (was_root_) EXPECT_EQ(::setresuid(0, 0, 0), 0);
  }
  bool is_root() const { return ::geteuid() == 0; }

 private:
  bool was_root_ = ::geteuid() == 0 && ::setresuid(65534, 65534, 0) == 0;  // 0 remains the saved user id
};

// Removes all permissions of a folder until the end of the test.
class Locked {
 public:
  explicit Locked(std::filesystem::path folder) : folder_(std::move(folder)) {
    namespace fs = std::filesystem;
    fs::permissions(folder_.parent_path(), fs::perms::all);
    fs::permissions(folder_, fs::perms::none);
  }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;
  ~Locked() { std::filesystem::permissions(folder_, std::filesystem::perms::owner_all); }

 private:
  std::filesystem::path folder_;
};

}  // namespace ingot
