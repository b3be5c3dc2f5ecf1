// A guarded memory map of a file: bytes that can no longer be read appear as zeros and set a flag, instead of ending
// the process by SIGBUS.
#pragma once

#include <sys/stat.h>

#include <atomic>
#include <cstddef>
#include <filesystem>
#include <span>

namespace ingot {

// A read-only private map of a whole file. The first one installs the process's SIGBUS handler; a fault outside all
// ranges goes to the previous handler.
class MappedRange {
 public:
  // `file`: an open descriptor of the file, which may be closed afterwards; `info`: its fstat result, with a size of at
  // least one byte. Errors: resource.
  MappedRange(int file, const struct stat& info, std::filesystem::path path);
  MappedRange(const MappedRange&) = delete;
  MappedRange& operator=(const MappedRange&) = delete;
  ~MappedRange();

  std::span<const std::byte> bytes() const { return {data_, static_cast<size_t>(info_.st_size)}; }
  const std::filesystem::path& path() const { return path_; }

  // Whether a touched byte could not be read: the file was truncated, or its storage fails. From the page of that byte
  // on, everything then reads as zeros. A result computed from the bytes can be trusted only if this returns false
  // afterwards.
  bool faulty() const { return faulty_; }

  const struct stat& info() const { return info_; }  // as of when it was mapped

 private:
  std::filesystem::path path_;
  struct stat info_;
  const std::byte* data_ = nullptr;
  std::atomic<bool> faulty_{false};
};

// Throws corrupt, naming the file, when any mapped file of this process was faulty, even if it is no longer mapped. For
// programs with a single job, whose results must not come from zeros.
void check_mapped_files();

}  // namespace ingot
