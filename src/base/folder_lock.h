// One process a folder, on a local disk or on NFS.
//
// The lock is the file FOLDER/lock, made by link(2), which is atomic on every NFS version; flock is not on all. It says
// who holds it, and its holder sets its time every few seconds. A lock whose process is known to be gone (the same boot
// and the same PID namespace, and no such process) is taken over at once; one of another machine, or of a process that
// /proc hides, when it has shown no sign of life for a while. Times are the file server's, so clocks need not agree.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

namespace ingot {

struct FolderLockTimes {
  double beat_s = 10;   // between signs of life
  double stale_s = 60;  // without one another machine's lock is taken over
};

class FolderLock {
 public:
  // The folder exists. Errors: unavailable, with who holds it and what to do, when somebody does, or when the folder
  // cannot be written.
  explicit FolderLock(const std::filesystem::path& folder, FolderLockTimes times = {});
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  ~FolderLock();  // gives it back

  // Whose lock was taken over, and why; empty when there was none.
  const std::string& taken_over() const;
  // False when the lock is not ours any more: somebody removed it or took it over while this process was stopped.
  bool held() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ingot
