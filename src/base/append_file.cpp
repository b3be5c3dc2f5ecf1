#include "base/append_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.h"
#include "base/path.h"

namespace ingot {

AppendFile::AppendFile(std::filesystem::path path) : path_(std::move(path)) {
  // Opening a pipe that nobody reads fails (ENXIO) instead of blocking. Writes to a pipe that is read, such as standard
  // output in a container, may be as slow as its reader.
  descriptor_ = ::open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0644);
  if (descriptor_ < 0) throw_unwritable(path_, "cannot be opened", errno);
  ::fcntl(descriptor_, F_SETFL, O_APPEND);
}

AppendFile::~AppendFile() { ::close(descriptor_); }

void AppendFile::append(std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(descriptor_, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const ErrorKind kind = errno == ENOSPC || errno == EDQUOT ? ErrorKind::resource : ErrorKind::unavailable;
      throw_error(kind, "{}: cannot write: {}", path_.string(), errno_message(errno));
    }
    text.remove_prefix(static_cast<size_t>(n));
  }
}

}  // namespace ingot
