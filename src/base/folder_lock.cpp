#include "base/folder_lock.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <optional>
#include <thread>

#include "base/descriptor.h"
#include "base/error.h"
#include "base/lock_file.h"
#include "base/machine.h"
#include "base/mutex.h"
#include "base/threads.h"

namespace ingot {

namespace fs = std::filesystem;

struct FolderLock::State {
  static constexpr std::chrono::milliseconds a_moment{20};
  static constexpr int deepest_turn = 3;  // nested stale turns: each was left by a process that ended during its turn
  fs::path folder, path;
  FolderLockTimes times;
  LockHolder self = LockHolder::this_process();
  std::string taken_over;
  Descriptor file;  // the lock, whose time is updated
  std::atomic<bool> held = false;
  Guarded<bool> ending{false};
  std::thread beating;

  bool here(const LockHolder& h) const { return h.place == self.place && h.place != "?"; }
  // Whether the process is known to be gone, or to be alive. When /proc hides it, neither may be known: the lock's time
  // then decides, as for another machine.
  bool gone(const LockHolder& h) const { return here(h) && !process_alive(h.pid, h.started); }
  bool lives(const LockHolder& h) const {
    return here(h) && !h.started.empty() && process_start(h.pid) == h.started && !gone(h);
  }

  // Why the lock may be taken over; throws when it may not.
  std::string why_stale(const FoundLock& found, double now) const {
    const LockHolder& h = found.holder;
    const std::string who = fmt::format("process {} on {} (since {})", h.pid, h.host, h.since);
    if (gone(h)) return who + ", which is gone";
    if (lives(h)) {
      throw_hint(ErrorKind::unavailable, "wait for it, or give this run another name",
                 "{}: in use by another process: {}", folder.string(), who);
    }
    const double silent = now - found.changed;
    if (silent < times.stale_s) {
      throw_hint(ErrorKind::unavailable,
                 fmt::format("stop it there; if it has already exited, restart in {:.0f} s: a lock not refreshed for "
                             "{:.0f} s is taken over",
                             times.stale_s - std::max(silent, 0.0) + 1, times.stale_s),
                 "{}: in use by another process: {}", folder.string(), who);
    }
    return fmt::format("{}, which has not refreshed its lock for {:.0f} s", who, silent);
  }

  // Removes `lock` if it is still the judged one. Only the process that holds the turn of a token may remove the lock
  // with this token, and no other lock ever has it, so a lock that was made meanwhile is never removed. A turn is
  // itself a lock, with a name of its own for each token; a turn that was left behind is removed in the same way.
  void remove(const fs::path& lock, const LockHolder& judged, const LockCandidate& clock, int depth = 0) const {
    const fs::path turn = folder / fmt::format(".lock.turn.{}", judged.token);
    const LockCandidate mine(folder / fmt::format(".lock.{}.{}", depth, self.token), self.text());
    if (!mine.link_to(turn)) {
      const std::optional<FoundLock> other = read_lock(turn);
      const bool left = other && (gone(other->holder) || clock.now() - other->changed > times.stale_s);
      if (left && depth < deepest_turn) return remove(turn, other->holder, clock, depth + 1);
      std::this_thread::sleep_for(a_moment);
      return;
    }
    const std::optional<FoundLock> found = read_lock(lock);
    if (found && found->holder.token == judged.token) ::unlink(lock.c_str());
    ::unlink(turn.c_str());
  }

  void take() {
    LockCandidate candidate(folder / fmt::format(".lock.{}", self.token), self.text());
    for (int attempt = 0; !candidate.link_to(path); ++attempt) {
      const std::optional<FoundLock> found = read_lock(path);
      if (attempt == 100) {
        throw_hint(ErrorKind::unavailable, "try again", "{}: several processes are trying to take this lock at once",
                   path.string());
      }
      if (!found) {  // released just now
        std::this_thread::sleep_for(a_moment);
        continue;
      }
      taken_over = why_stale(*found, candidate.now());
      remove(path, found->holder, candidate);
    }
    file = candidate.release();
    held = true;
  }

  // Also takes a turn, because another process may be about to take the lock over.
  void give_back() const {
    if (!still_ours()) return;
    try {
      const LockCandidate clock(folder / fmt::format(".lock.{}", self.token), self.text());
      for (int left = 0; left <= deepest_turn && still_ours(); ++left) remove(path, self, clock);
    } catch (const Error&) {
      ::unlink(path.c_str());  // on a full disk no turn can be taken
    }
  }

  // Also updates the lock's time.
  bool still_ours() const {
    ::futimens(file.fd, nullptr);
    struct stat ours{}, there{};
    if (::fstat(file.fd, &ours) != 0) return errno != ESTALE;
    if (::stat(path.c_str(), &there) != 0) return errno != ENOENT;  // an unreachable server has not removed it
    return ours.st_ino == there.st_ino && ours.st_dev == there.st_dev;
  }

  void beat() {
    while (held) {
      if (ending.lock().wait_for(times.heartbeat_s, [](bool end) { return end; })) return;
      if (!still_ours()) held = false;
    }
  }
};

FolderLock::FolderLock(const fs::path& folder, FolderLockTimes times) : state_(std::make_unique<State>()) {
  state_->folder = folder;
  state_->path = folder / "lock";
  state_->times = times;
  state_->take();
  try {
    state_->beating = start_thread("keeping " + state_->path.string(), [state = state_.get()] { state->beat(); });
  } catch (...) {
    state_->give_back();
    throw;
  }
}

FolderLock::~FolderLock() {
  *state_->ending.lock() = true;
  state_->ending.notify_all();
  state_->beating.join();
  if (state_->held) state_->give_back();
}

const std::string& FolderLock::taken_over() const { return state_->taken_over; }

bool FolderLock::held() const { return state_->held; }

}  // namespace ingot
