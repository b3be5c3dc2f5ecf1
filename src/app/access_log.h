// The server's access log in a file of its own.
#pragma once

#include <filesystem>
#include <memory>
#include <string_view>

#include "base/append_file.h"
#include "base/log.h"
#include "base/mutex.h"

namespace ingot::app {

// Thread-safe.
class AccessLog {
 public:
  // `log` outlives it, and is where it says once that lines are missing. Errors: unavailable when the file cannot be
  // opened.
  AccessLog(std::filesystem::path path, const Log& log);

  void append(std::string_view line);  // and a line feed
  // Lines go to the file that has the path now: whoever rotates logs has renamed the one before. Errors: unavailable;
  // lines go where they went then.
  void reopen();

 private:
  struct Lines {
    std::unique_ptr<AppendFile> file;
    bool missing = false;  // and it was said
  };

  std::filesystem::path path_;
  const Log& log_;
  Guarded<Lines> lines_;
};

}  // namespace ingot::app
