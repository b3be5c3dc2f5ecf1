// An append-only file that others may read while it grows.
#pragma once

#include <filesystem>
#include <string_view>

namespace ingot {

// The file is created if it does not exist; existing contents stay. Each text is passed to the kernel before append()
// returns, so a killed process leaves at most the last text incomplete.
class AppendFile {
 public:
  // Errors: unavailable when it cannot be opened.
  explicit AppendFile(std::filesystem::path path);
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;
  ~AppendFile();

  // Errors: resource for a full disk, else unavailable, naming the file.
  void append(std::string_view text);

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
};

}  // namespace ingot
