// A lock of a path that says how much is to come there, for a cache's folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "base/fetch.h"

namespace ingot {

// An exclusive lock of a path among threads and processes. Its file is there while the lock is held or waited for, and
// says how many bytes what is fetched under it will have.
class PathLock {
 public:
  // Waits until it is free, and asks options.progress meanwhile. Errors: unavailable for a file that cannot be made or
  // locked, and where options.progress says no.
  PathLock(std::filesystem::path path, const FetchOptions& options);
  PathLock(const PathLock&) = delete;
  PathLock& operator=(const PathLock&) = delete;
  ~PathLock();

  // Errors: resource.
  void reserve(uint64_t bytes) const;
  // What somebody has reserved who has the lock.
  static std::optional<uint64_t> reserved(const std::filesystem::path& path);

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
};

}  // namespace ingot
