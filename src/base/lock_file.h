// The file of a folder's lock (folder_lock.h): made so that of several processes one succeeds, on any NFS.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "base/descriptor.h"

namespace ingot {

// Who holds a lock, as the file says it: a line each, "key value".
struct LockHolder {
  std::string host;
  std::string place;  // of the process number: boot and PID namespace; "?" where the kernel does not tell
  int64_t pid = 0;
  std::string started;  // process_start(); empty where the kernel does not tell
  std::string since;
  std::string token;  // of this lock alone

  static LockHolder this_process();  // with a new token
  static LockHolder parse(const std::string& text);
  std::string text() const;
};

// What lies at `path` now, asked of an NFS server anew; nothing when it is not there. Errors: unavailable when it
// cannot be read.
struct FoundLock {
  LockHolder holder;
  double changed = 0;  // seconds of the server's clock
};
std::optional<FoundLock> look_at_lock(const std::filesystem::path& path);

// A file of our own beside the lock, to be linked to it; removed when destroyed. Errors: unavailable, naming the file
// that cannot be written.
class LockCandidate {
 public:
  LockCandidate(std::filesystem::path path, const std::string& text);
  LockCandidate(const LockCandidate&) = delete;
  LockCandidate& operator=(const LockCandidate&) = delete;
  ~LockCandidate();

  // Makes `lock` by link(2), if there is none; whether it is ours now.
  bool link_to(const std::filesystem::path& lock) const;
  // Now, by the file server's clock, in seconds.
  double now() const;
  Descriptor release();  // the file, which the destructor removes still

 private:
  [[noreturn]] void fail() const;
  std::filesystem::path path_;
  Descriptor file_;
};

}  // namespace ingot
