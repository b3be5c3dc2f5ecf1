// A lock file for a cache's folder, which also records how many bytes the holder of the lock is downloading.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "storage/fetch.h"

namespace ingot {

// An exclusive lock among threads and processes. The lock file exists while the lock is held or waited for, and records
// the size of the file that the holder downloads.
class PathLock {
 public:
  // `path`: the lock file. Waits until the lock is free, and calls options.progress meanwhile. Errors: unavailable for
  // a lock file that cannot be created or locked, and when options.progress returns false.
  PathLock(std::filesystem::path path, const FetchOptions& options);
  PathLock(const PathLock&) = delete;
  PathLock& operator=(const PathLock&) = delete;
  ~PathLock();

  // Records the size of the download. Errors: resource when the lock file cannot be written.
  void reserve(uint64_t bytes) const;
  // The size that the current holder of the lock has recorded; nullopt without a holder or a recorded size.
  static std::optional<uint64_t> reserved(const std::filesystem::path& path);

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
};

}  // namespace ingot
