// Detects that memory-mapped files have changed since they were mapped.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/descriptor.h"
#include "base/file.h"
#include "base/mutex.h"

namespace ingot {

// Why a file's bytes cannot be trusted.
struct FileFault {
  std::filesystem::path file;
  std::string what;
};

class FileWatch {
 public:
  FileWatch() = default;
  FileWatch(const FileWatch&) = delete;
  FileWatch& operator=(const FileWatch&) = delete;

  // Keeps the file mapped and open, so that it is watched even after a rename. All calls must be made before other
  // threads call fault(). Errors: unavailable when another file is now at its path; those of open_regular_file.
  void add(const MappedFile& file);

  // The first fault found: a file that was faulty (MappedRange::faulty), or whose size or modification time differs
  // from when it was mapped. Another file at its path is not a fault. Each call checks all files again, with one fstat
  // per file, until there is a fault, which then stays. If a call finds no fault, everything that was computed from the
  // files before that call used the contents that had been mapped. Thread-safe.
  std::optional<FileFault> fault() const;
  // The first file that is no longer at its path: it was renamed, removed or replaced.
  std::optional<std::filesystem::path> replaced() const;
  int64_t size() const { return std::ssize(files_); }  // open descriptors, one per file

 private:
  struct Watched {
    std::shared_ptr<const MappedRange> range;
    Descriptor descriptor;
  };
  std::optional<FileFault> find_fault() const;

  std::vector<Watched> files_;
  mutable std::atomic<bool> found_{false};
  mutable Guarded<std::optional<FileFault>> fault_;
};

}  // namespace ingot
