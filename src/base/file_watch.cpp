#include "base/file_watch.h"

#include <sys/stat.h>

#include "base/error.h"
#include "base/path.h"

namespace ingot {
namespace {

bool same_file(const struct stat& a, const struct stat& b) { return a.st_ino == b.st_ino && a.st_dev == b.st_dev; }

// What has changed since the file was mapped; nothing when it is unchanged.
std::optional<std::string> change_of(const struct stat& mapped, int descriptor) {
  struct stat now{};
  if (::fstat(descriptor, &now) != 0) return std::nullopt;
  if (now.st_size != mapped.st_size) {
    return fmt::format("it has {} bytes now, and had {} when it was opened", now.st_size, mapped.st_size);
  }
  if (now.st_mtim.tv_sec != mapped.st_mtim.tv_sec || now.st_mtim.tv_nsec != mapped.st_mtim.tv_nsec) {
    return "it was written to after it was opened";
  }
  return std::nullopt;
}

}  // namespace

void FileWatch::add(const MappedFile& file) {
  if (!file.range()) return;
  struct stat now{};
  Descriptor descriptor = open_regular_file(file.path(), &now);
  if (!same_file(now, file.range()->info())) {
    throw_hint(ErrorKind::unavailable, "start again", "{}: it was replaced while it was being read",
               file.path().string());
  }
  files_.push_back({file.range(), std::move(descriptor)});
}

std::optional<FileFault> FileWatch::find_fault() const {
  for (const Watched& file : files_) {
    const std::filesystem::path& path = file.range->path();
    if (file.range->faulty()) return FileFault{path, "it was truncated, or its storage cannot be read"};
    std::optional<std::string> change = change_of(file.range->info(), file.descriptor.fd);
    if (change) return FileFault{path, std::move(*change)};
  }
  return std::nullopt;
}

std::optional<FileFault> FileWatch::fault() const {
  if (!found_) {
    std::optional<FileFault> fault = find_fault();
    if (!fault) return std::nullopt;
    auto held = fault_.lock();
    if (!*held) *held = std::move(fault);
    found_ = true;
  }
  return *fault_.lock();
}

std::optional<std::filesystem::path> FileWatch::replaced() const {
  for (const Watched& file : files_) {
    struct stat now{};
    const std::filesystem::path& path = file.range->path();
    if (::stat(path.c_str(), &now) != 0 || !same_file(now, file.range->info())) return path;
  }
  return std::nullopt;
}

}  // namespace ingot
