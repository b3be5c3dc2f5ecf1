// The file of a folder's lock (folder_lock.h), made so that exactly one of several processes succeeds, on any NFS.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "base/descriptor.h"

namespace ingot {

// The holder of a lock, as stored in the file: lines of "key value".
struct LockHolder {
  std::string host;
  std::string place;  // where `pid` is valid: boot and PID namespace; "?" when the kernel does not report them
  int64_t pid = 0;
  std::string started;  // process_start(); empty when the kernel does not report it
  std::string since;
  std::string token;  // unique to this lock

  static LockHolder this_process();  // with a new token
  static LockHolder parse(const std::string& text);
  std::string text() const;
};

// Opens and reads the lock at `path`, so that an NFS client asks the server anew; nothing when it does not exist.
// Errors: unavailable when it cannot be read.
struct FoundLock {
  LockHolder holder;
  double changed = 0;  // modification time, seconds of the server's clock
};
std::optional<FoundLock> read_lock(const std::filesystem::path& path);

// A file of this process beside the lock, to be linked to the lock's name; removed when destroyed. Errors: unavailable,
// naming the file that cannot be written.
class LockCandidate {
 public:
  LockCandidate(std::filesystem::path path, const std::string& text);
  LockCandidate(const LockCandidate&) = delete;
  LockCandidate& operator=(const LockCandidate&) = delete;
  ~LockCandidate();

  // Makes `lock` by link(2) if it does not exist. Returns whether it is ours now.
  bool link_to(const std::filesystem::path& lock) const;
  // The current time of the file server's clock, in seconds.
  double now() const;
  Descriptor release();  // the open file; the destructor still removes its name

 private:
  [[noreturn]] void fail() const;
  std::filesystem::path path_;
  Descriptor file_;
};

}  // namespace ingot
