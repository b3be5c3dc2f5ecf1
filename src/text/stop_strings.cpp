#include "text/stop_strings.h"

#include <algorithm>

#include "base/error.h"

namespace ingot::text {

StopStrings::StopStrings(std::vector<std::string> stops) : stops_(std::move(stops)) {
  for (const std::string& stop : stops_) {
    if (stop.empty()) throw_error(ErrorKind::usage, "a stop string is empty");
  }
}

std::string StopStrings::push(std::string_view piece) {
  if (found_) return {};
  held_ += piece;
  size_t end = std::string::npos;
  for (const std::string& stop : stops_) end = std::min(end, held_.find(stop));
  if (end != std::string::npos) {
    found_ = true;
    return held_.substr(0, end);
  }
  // The longest suffix of the text that is a prefix of a stop string is held back.
  size_t keep = 0;
  for (const std::string& stop : stops_) {
    for (size_t n = std::min(stop.size() - 1, held_.size()); n > keep; --n) {
      if (held_.ends_with(std::string_view(stop).substr(0, n))) keep = n;
    }
  }
  std::string free = held_.substr(0, held_.size() - keep);
  held_.erase(0, free.size());
  return free;
}

std::string StopStrings::finish() { return found_ ? std::string() : std::move(held_); }

}  // namespace ingot::text
