// Stop strings in a text that comes in pieces.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ingot::text {

class StopStrings {
 public:
  explicit StopStrings(std::vector<std::string> stops);  // ErrorKind::usage for an empty one

  // What of the text so far can be given out: everything before a stop string, and nothing that could be the beginning
  // of one.
  std::string push(std::string_view piece);
  // What was held back, at the end. Nothing when a stop string was found.
  std::string finish();
  bool found() const { return found_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool found_ = false;
};

}  // namespace ingot::text
