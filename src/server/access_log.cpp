#include "server/access_log.h"

#include <string>

#include "base/error.h"

namespace ingot::server {

AccessLog::AccessLog(std::filesystem::path path, const Log& log) : path_(std::move(path)), log_(log) { reopen(); }

void AccessLog::append(std::string_view line) {
  auto held = lines_.lock();
  try {
    held->file->append(std::string(line) + "\n");
  } catch (const Error& error) {
    if (!std::exchange(held->missing, true))
      log_.warning("lines of the access log could not be written: {}", text_of(error));
  }
}

void AccessLog::reopen() {
  auto file = std::make_unique<AppendFile>(path_);
  auto held = lines_.lock();
  held->file = std::move(file);
  held->missing = false;
}

}  // namespace ingot::server
