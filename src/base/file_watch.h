// Notices that mapped files are no longer what was mapped.
#pragma once

#include <atomic>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

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

  // Its map lives as long as the watch, too. Before others ask for faults.
  void add(const MappedFile& file);

  // The first fault that was found: a file that was faulty (MappedRange::faulty), or was written to since it was
  // mapped. Looks again at each call, with one stat a file, until there is one, which then stays. Whatever was computed
  // from the files before a call that finds none was computed from what had been mapped. Thread-safe.
  std::optional<FileFault> fault() const;

 private:
  std::optional<FileFault> look() const;

  std::vector<std::shared_ptr<const MappedRange>> files_;
  mutable std::atomic<bool> found_{false};
  mutable Guarded<std::optional<FileFault>> fault_;
};

}  // namespace ingot
