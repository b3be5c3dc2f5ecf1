#include "base/lock_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <random>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/machine.h"

namespace ingot {

namespace fs = std::filesystem;

namespace {

std::string first_line(const fs::path& path) {
  try {
    const std::string text = read_file(path);
    return text.substr(0, text.find('\n'));
  } catch (const Error&) {
    return "";
  }
}

double seconds_of(const timespec& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

}  // namespace

LockHolder LockHolder::this_process() {
  LockHolder self;
  self.host = host_name();
  std::error_code ignored;
  const fs::path name_space = fs::read_symlink("/proc/self/ns/pid", ignored);
  const std::string boot = first_line("/proc/sys/kernel/random/boot_id");
  self.place = boot.empty() || name_space.empty() ? "?" : boot + "/" + name_space.string();
  self.pid = ::getpid();
  self.started = process_start(self.pid);
  self.since = utc_timestamp();
  std::random_device random;
  self.token = fmt::format("{:08x}{:08x}", random(), random());
  return self;
}

LockHolder LockHolder::parse(const std::string& text) {
  LockHolder holder;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    const size_t space = line.find(' ');
    if (space == std::string::npos) continue;
    const std::string key = line.substr(0, space), value = line.substr(space + 1);
    if (key == "host") holder.host = value;
    if (key == "place") holder.place = value;
    if (key == "pid") std::from_chars(value.data(), value.data() + value.size(), holder.pid);
    if (key == "started") holder.started = value;
    if (key == "since") holder.since = value;
    if (key == "token") holder.token = value;
  }
  return holder;
}

std::string LockHolder::text() const {
  return fmt::format("host {}\nplace {}\npid {}\nstarted {}\nsince {}\ntoken {}\n", host, place, pid, started, since,
                     token);
}

std::optional<FoundLock> read_lock(const fs::path& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info{};
  char text[4096];
  ssize_t bytes = -1;
  if (file.fd >= 0 && ::fstat(file.fd, &info) == 0) bytes = ::read(file.fd, text, sizeof text);
  if (bytes >= 0) return FoundLock{LockHolder::parse({text, static_cast<size_t>(bytes)}), seconds_of(info.st_mtim)};
  if (errno == ENOENT || errno == ESTALE) return std::nullopt;
  throw_hint(ErrorKind::unavailable, "if the lock belongs to another user, that user must remove it",
             "{}: cannot be read: {}", path.string(), errno_message(errno));
}

LockCandidate::LockCandidate(fs::path path, const std::string& text)
    : path_(std::move(path)), file_(::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644)) {
  if (file_.fd < 0) fail();
  if (::write(file_.fd, text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
      (::fsync(file_.fd) != 0 && errno != EINVAL && errno != ENOTSUP)) {
    const int error = errno;
    ::unlink(path_.c_str());
    errno = error;
    fail();
  }
}

LockCandidate::~LockCandidate() { ::unlink(path_.c_str()); }

// On NFS, link(2) may report failure when only the reply was lost; the number of links shows whether it succeeded.
bool LockCandidate::link_to(const fs::path& lock) const {
  const bool linked = ::link(path_.c_str(), lock.c_str()) == 0;
  const int error = errno;
  struct stat info{};
  if (linked || (::fstat(file_.fd, &info) == 0 && info.st_nlink == 2)) return true;
  if (error == EEXIST) return false;
  throw_error(ErrorKind::unavailable, "{}: cannot be created: {}", lock.string(), errno_message(error));
}

double LockCandidate::now() const {
  struct stat info{};
  if (::futimens(file_.fd, nullptr) != 0 || ::fstat(file_.fd, &info) != 0) fail();
  return seconds_of(info.st_mtim);
}

Descriptor LockCandidate::release() { return std::move(file_); }

void LockCandidate::fail() const {
  throw_error(ErrorKind::unavailable, "{}: cannot be written: {}", path_.string(), errno_message(errno));
}

}  // namespace ingot
