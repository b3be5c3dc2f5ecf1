// The server's access log, in its own file.
#pragma once

#include <filesystem>
#include <memory>
#include <string_view>

#include "base/append_file.h"
#include "base/log.h"
#include "base/mutex.h"

namespace ingot::server {

// Thread-safe.
class AccessLog {
 public:
  // `log` must outlive this object and gets one warning when lines are lost. Errors: unavailable when the file cannot
  // be opened.
  AccessLog(std::filesystem::path path, const Log& log);

  void append(std::string_view line);  // appends a line feed
  // Opens the file at the path anew, after log rotation has renamed the old one. Errors: unavailable; lines then
  // continue to go to the old file.
  void reopen();

 private:
  struct Lines {
    std::unique_ptr<AppendFile> file;
    bool missing = false;  // lines were lost, and the warning was logged
  };

  std::filesystem::path path_;
  const Log& log_;
  Guarded<Lines> lines_;
};

}  // namespace ingot::server
