// Notices that mapped files are no longer what was mapped.
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

// Why a file's bytes are not to be trusted.
struct FileFault {
  std::filesystem::path file;
  std::string what;
};

class FileWatch {
 public:
  FileWatch() = default;
  FileWatch(const FileWatch&) = delete;
  FileWatch& operator=(const FileWatch&) = delete;

  // Keeps its map, and a descriptor of it: it is watched under whatever name it has later. Before others ask for
  // faults. Errors: unavailable when another file is under its path by now; those of open_regular_file.
  void add(const MappedFile& file);

  // The first fault that was found: a file that was faulty (MappedRange::faulty), or whose size or time of writing is
  // no longer what it was when it was mapped. That another file takes its path is none. Looks again at each call, with
  // one fstat a file, until there is one, which then stays. Whatever was computed from the files before a call that
  // finds none was computed from what had been mapped. Thread-safe.
  std::optional<FileFault> fault() const;
  // The first file that is no longer under its path: it was renamed, removed or replaced.
  std::optional<std::filesystem::path> replaced() const;
  int64_t size() const { return std::ssize(files_); }  // descriptors that it has open

 private:
  struct Watched {
    std::shared_ptr<const MappedRange> range;
    Descriptor descriptor;
  };
  std::optional<FileFault> look() const;

  std::vector<Watched> files_;
  mutable std::atomic<bool> found_{false};
  mutable Guarded<std::optional<FileFault>> fault_;
};

}  // namespace ingot
