#include "base/file_watch.h"

namespace ingot {

void FileWatch::add(const MappedFile& file) {
  if (file.range()) files_.push_back(file.range());
}

std::optional<FileFault> FileWatch::look() const {
  for (const std::shared_ptr<const MappedRange>& file : files_) {
    if (file->faulty()) return FileFault{file->path(), "it was cut short, or its storage cannot be read"};
    if (std::optional<std::string> change = file->change()) return FileFault{file->path(), std::move(*change)};
  }
  return std::nullopt;
}

std::optional<FileFault> FileWatch::fault() const {
  if (!found_) {
    std::optional<FileFault> fault = look();
    if (!fault) return std::nullopt;
    auto held = fault_.lock();
    if (!*held) *held = std::move(fault);
    found_ = true;
  }
  return *fault_.lock();
}

}  // namespace ingot
