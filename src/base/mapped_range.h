// Memory that a file is mapped to, guarded: what can no longer be read of the file reads as zeros and is noticed,
// instead of ending the process by SIGBUS.
#pragma once

#include <sys/stat.h>

#include <atomic>
#include <cstddef>
#include <filesystem>
#include <span>

namespace ingot {

// A read-only private map of a whole file. The first one installs the process's handler of SIGBUS; a fault outside of
// all ranges goes to the handler that was there before.
class MappedRange {
 public:
  // `file`: an open descriptor of the file, which may be closed afterwards; `info`: what fstat said of it, of at least
  // one byte. Errors: resource.
  MappedRange(int file, const struct stat& info, std::filesystem::path path);
  MappedRange(const MappedRange&) = delete;
  MappedRange& operator=(const MappedRange&) = delete;
  ~MappedRange();

  std::span<const std::byte> bytes() const { return {data_, static_cast<size_t>(info_.st_size)}; }
  const std::filesystem::path& path() const { return path_; }

  // Whether some of its bytes were touched and could not be read: the file has been cut short, or its storage fails.
  // They and all behind them are zeros then. What was computed from the bytes before this was asked is to be trusted
  // only if the answer is no.
  bool faulty() const { return faulty_; }

  const struct stat& info() const { return info_; }  // when it was mapped

 private:
  std::filesystem::path path_;
  struct stat info_;
  const std::byte* data_ = nullptr;
  std::atomic<bool> faulty_{false};
};

// Throws corrupt, naming the file, when a mapped file of this process has been faulty, whether it is still mapped or
// not. For programs with one job, whose results must not come from zeros.
void check_mapped_files();

}  // namespace ingot
