// A file that grows while somebody reads it.
#pragma once

#include <filesystem>
#include <string_view>

namespace ingot {

// Made when it is not there; what is there stays. Every piece is with the system when append() returns, so that a
// process that is killed leaves at most the last one torn.
class AppendFile {
 public:
  // Errors: unavailable when it cannot be opened.
  explicit AppendFile(std::filesystem::path path);
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;
  ~AppendFile();

  // Errors: resource for a full disk, else unavailable, naming the file.
  void append(std::string_view piece);

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
};

}  // namespace ingot
