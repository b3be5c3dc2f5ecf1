// A lock by which one process has a folder to itself, on a local disk or on NFS.
//
// The lock is the file FOLDER/lock, made by link(2), which is atomic on every NFS version; flock is not available on
// all. The file names its holder, who updates its time every few seconds. A lock whose process is known to be gone
// (same boot and PID namespace, and no such process) is taken over at once. A lock of another machine, or of a process
// that /proc hides, is taken over when its time has not been updated for stale_s. Times are the file server's, so
// clocks need not agree.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

namespace ingot {

struct FolderLockTimes {
  double heartbeat_s = 10;  // between updates of the lock's time
  double stale_s = 60;      // age at which another machine's lock is taken over
};

class FolderLock {
 public:
  // REQUIRES that the folder exists. Errors: unavailable, with the holder and what to do, when the lock is held, or
  // when the folder cannot be written.
  explicit FolderLock(const std::filesystem::path& folder, FolderLockTimes times = {});
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  ~FolderLock();  // releases the lock

  // The former holder of a lock that was taken over, and why it was; empty when none was.
  const std::string& taken_over() const;
  // False when the lock is no longer ours: somebody removed it or took it over while this process was stopped.
  bool held() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ingot
