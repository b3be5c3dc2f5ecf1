#include "storage/path_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "base/descriptor.h"
#include "base/error.h"
#include "storage/http_attempts.h"

namespace ingot {

namespace fs = std::filesystem;

PathLock::PathLock(fs::path path, const FetchOptions& options) : path_(std::move(path)) {
  for (;;) {
    descriptor_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (descriptor_ < 0) {
      throw_hint(ErrorKind::unavailable, "set INGOT_CACHE to another folder", "{}: cannot be created: {}",
                 path_.string(), errno_message(errno));
    }
    struct stat opened{}, named{};
    const bool locked = ::flock(descriptor_, LOCK_EX | LOCK_NB) == 0;
    const int code = locked ? 0 : errno;
    if (locked && ::fstat(descriptor_, &opened) == 0 && ::stat(path_.c_str(), &named) == 0 &&
        opened.st_ino == named.st_ino && opened.st_dev == named.st_dev && ::ftruncate(descriptor_, 0) == 0) {
      return;
    }
    ::close(descriptor_);
    if (!locked && code != EWOULDBLOCK && code != EINTR) {
      throw_hint(ErrorKind::unavailable, "set INGOT_CACHE to a folder on a local disk", "{}: cannot be locked: {}",
                 path_.string(), errno_message(code));
    }
    if (options.progress && !options.progress(0, 0)) throw_stopped(path_.string());
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

PathLock::~PathLock() {
  ::unlink(path_.c_str());
  ::close(descriptor_);
}

void PathLock::reserve(uint64_t bytes) const {
  const std::string text = fmt::format("{}\n", bytes);
  if (::pwrite(descriptor_, text.data(), text.size(), 0) != std::ssize(text)) {
    throw_hint(ErrorKind::resource, "set INGOT_CACHE to another folder", "{}: cannot be written", path_.string());
  }
}

std::optional<uint64_t> PathLock::reserved(const fs::path& path) {
  const Descriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (file.fd < 0) return std::nullopt;
  std::array<char, 32> text{};
  const bool held = ::flock(file.fd, LOCK_EX | LOCK_NB) != 0;
  const ssize_t read = held ? ::pread(file.fd, text.data(), text.size() - 1, 0) : 0;
  if (read <= 0) return std::nullopt;
  return std::strtoull(text.data(), nullptr, 10);
}

}  // namespace ingot
