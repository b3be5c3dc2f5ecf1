// Stop strings in a streamed text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ingot::text {

class StopStrings {
 public:
  explicit StopStrings(std::vector<std::string> stops);  // ErrorKind::usage for an empty one

  // Appends `piece` and returns the text that can be emitted: up to a stop string, without a suffix that may be the
  // beginning of one.
  std::string push(std::string_view piece);
  // The text still held back at the end of the stream; empty if a stop string was found.
  std::string finish();
  bool found() const { return found_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool found_ = false;
};

}  // namespace ingot::text
