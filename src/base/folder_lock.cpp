#include "base/folder_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <optional>
#include <random>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/machine.h"
#include "base/mutex.h"

namespace ingot {

namespace fs = std::filesystem;

namespace {

// Who holds a lock, as the file says it: a line each, "key value".
struct Holder {
  std::string host;
  std::string place;  // of the process number: boot and PID namespace; "?" where the kernel does not tell
  int64_t pid = 0;
  std::string started;  // the process's start in clock ticks since boot: tells a number that was given again
  std::string since;
  std::string token;  // of this lock alone

  std::string text() const {
    return fmt::format("host {}\nplace {}\npid {}\nstarted {}\nsince {}\ntoken {}\n", host, place, pid, started, since,
                       token);
  }
};

std::string first_line(const fs::path& path) {
  try {
    const std::string text = read_file(path);
    return text.substr(0, text.find('\n'));
  } catch (const Error&) {
    return "";
  }
}

// Field 22 of /proc/PID/stat (proc(5)); the name before it may hold anything, but ends at the last parenthesis. Empty
// when there is no such process.
std::string start_of(int64_t pid) {
  const std::string stat = first_line(fmt::format("/proc/{}/stat", pid));
  size_t at = stat.rfind(')');
  if (at != std::string::npos && at + 2 < stat.size() && stat[at + 2] == 'Z') return "";  // ended: a zombie
  for (int field = 2; at != std::string::npos && field < 22; ++field) at = stat.find(' ', at + 1);
  return at == std::string::npos ? "" : stat.substr(at + 1, stat.find(' ', at + 1) - at - 1);
}

Holder this_process() {
  Holder self;
  self.host = host_name();
  std::error_code ignored;
  const fs::path name_space = fs::read_symlink("/proc/self/ns/pid", ignored);
  const std::string boot = first_line("/proc/sys/kernel/random/boot_id");
  self.place = boot.empty() || name_space.empty() ? "?" : boot + "/" + name_space.string();
  self.pid = ::getpid();
  self.started = start_of(self.pid);
  self.since = utc_timestamp();
  std::random_device random;
  self.token = fmt::format("{:08x}{:08x}", random(), random());
  return self;
}

Holder parse(const std::string& text) {
  Holder holder;
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

double seconds_of(const timespec& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

// A file that is opened for as long as it is needed.
struct Opened {
  int fd = -1;
  explicit Opened(int descriptor) : fd(descriptor) {}
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;
  ~Opened() {
    if (fd >= 0) ::close(fd);
  }
};

// What lies at `path` now: opening it asks an NFS server anew.
struct Found {
  Holder holder;
  double changed = 0;  // seconds of the server's clock
};
std::optional<Found> look(const fs::path& path) {
  const Opened file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info{};
  if (file.fd < 0 || ::fstat(file.fd, &info) != 0) return std::nullopt;
  char text[4096];
  const ssize_t bytes = ::read(file.fd, text, sizeof text);
  return Found{parse(std::string(text, bytes > 0 ? static_cast<size_t>(bytes) : 0)), seconds_of(info.st_mtim)};
}

// A file of our own beside the lock, to be linked to it.
class Candidate {
 public:
  Candidate(fs::path path, const std::string& text) : path_(std::move(path)) {
    fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd_ < 0) fail();
    if (::write(fd_, text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
        (::fsync(fd_) != 0 && errno != EINVAL && errno != ENOTSUP)) {
      const int error = errno;
      ::close(fd_);
      ::unlink(path_.c_str());
      errno = error;
      fail();
    }
  }
  Candidate(const Candidate&) = delete;
  Candidate& operator=(const Candidate&) = delete;
  ~Candidate() {
    ::unlink(path_.c_str());
    if (fd_ >= 0) ::close(fd_);
  }

  // Whether the lock is ours now. An NFS client may be told that its link failed when only the answer was lost; the
  // number of links tells.
  bool link_to(const fs::path& lock) const {
    const bool linked = ::link(path_.c_str(), lock.c_str()) == 0;
    const int error = errno;
    struct stat info{};
    if (linked || (::fstat(fd_, &info) == 0 && info.st_nlink == 2)) return true;
    if (error == EEXIST) return false;
    throw_error(ErrorKind::unavailable, "{}: cannot be made: {}", lock.string(), std::strerror(error));
  }
  // Now, by the file server's clock.
  double now() const {
    struct stat info{};
    if (::futimens(fd_, nullptr) != 0 || ::fstat(fd_, &info) != 0) fail();
    return seconds_of(info.st_mtim);
  }
  int release() { return std::exchange(fd_, -1); }

 private:
  [[noreturn]] void fail() const {
    throw_error(ErrorKind::unavailable, "{}: cannot be written: {}", path_.string(), std::strerror(errno));
  }
  fs::path path_;
  int fd_ = -1;
};

}  // namespace

struct FolderLock::State {
  fs::path folder, path;
  FolderLockTimes times;
  Holder self = this_process();
  std::string taken_over;
  int fd = -1;  // of the lock, to set its time
  std::atomic<bool> held = false;
  Guarded<bool> ending{false};
  std::thread beating;

  // Why the lock may be taken over; throws when it may not.
  std::string why_stale(const Found& found, double now) const {
    const Holder& h = found.holder;
    const std::string who = fmt::format("process {} on {} (since {})", h.pid, h.host, h.since);
    if (h.place == self.place && h.place != "?") {
      const bool there = start_of(h.pid) == h.started;
      if (there && !h.started.empty()) {
        throw_hint(ErrorKind::unavailable, "wait for it, or give this run another name",
                   "{}: another process runs here: {}", folder.string(), who);
      }
      return who + ", which is gone";
    }
    const double silent = now - found.changed;
    if (silent < times.stale_s) {
      throw_hint(
          ErrorKind::unavailable,
          fmt::format("end it there; if it is gone already, start again in {:.0f} s: a lock without a sign of life "
                      "for {:.0f} s is taken over",
                      times.stale_s - std::max(silent, 0.0) + 1, times.stale_s),
          "{}: another process runs here: {}", folder.string(), who);
    }
    return fmt::format("{}, which has given no sign of life for {:.0f} s", who, silent);
  }

  // Removes the lock that was judged, if it still is that one. One process at a time removes, so that none removes what
  // another has just made.
  void remove(const Holder& judged, const Candidate& clock) const {
    const fs::path turn = folder / ".lock.turn";
    const Candidate mine(folder / fmt::format(".lock.turn.{}", self.token), self.text());
    if (!mine.link_to(turn)) {
      const std::optional<Found> other = look(turn);
      if (other && clock.now() - other->changed > times.stale_s) ::unlink(turn.c_str());  // it ended in its turn
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      return;
    }
    const std::optional<Found> found = look(path);
    if (found && found->holder.token == judged.token) ::unlink(path.c_str());
    ::unlink(turn.c_str());
  }

  void take() {
    Candidate candidate(folder / fmt::format(".lock.{}", self.token), self.text());
    for (int attempt = 0; !candidate.link_to(path); ++attempt) {
      const std::optional<Found> found = look(path);
      if (attempt == 100) {
        throw_hint(ErrorKind::unavailable, "try again", "{}: several processes want it at once", path.string());
      }
      if (!found) continue;  // given back just now
      taken_over = why_stale(*found, candidate.now());
      remove(found->holder, candidate);
    }
    fd = candidate.release();
    held = true;
  }

  // Also sets the lock's time.
  bool still_ours() const {
    ::futimens(fd, nullptr);
    struct stat ours{}, there{};
    if (::stat(path.c_str(), &there) != 0) return errno != ENOENT;  // a server that is away has taken nothing
    if (::fstat(fd, &ours) != 0) return errno != ESTALE;
    return ours.st_ino == there.st_ino && ours.st_dev == there.st_dev;
  }

  void beat() {
    while (held) {
      if (ending.lock().wait_for(times.beat_s, [](bool end) { return end; })) return;
      if (!still_ours()) held = false;
    }
  }
};

FolderLock::FolderLock(const fs::path& folder, FolderLockTimes times) : state_(std::make_unique<State>()) {
  state_->folder = folder;
  state_->path = folder / "lock";
  state_->times = times;
  state_->take();
  state_->beating = std::thread([state = state_.get()] { state->beat(); });
}

FolderLock::~FolderLock() {
  *state_->ending.lock() = true;
  state_->ending.notify_all();
  state_->beating.join();
  if (state_->held && state_->still_ours()) ::unlink(state_->path.c_str());
  ::close(state_->fd);
}

const std::string& FolderLock::taken_over() const { return state_->taken_over; }

bool FolderLock::held() const { return state_->held; }

}  // namespace ingot
