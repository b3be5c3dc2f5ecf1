// A regular expression as it is written.
#pragma once

#include <string_view>
#include <vector>

#include "grammar/characters.h"

namespace ingot::grammar {

struct RegexNode {
  enum class Kind : uint8_t { set, sequence, choice, repeat, start, end, look_ahead };
  Kind kind = Kind::sequence;
  CharacterSet set;              // set
  std::vector<RegexNode> parts;  // sequence, choice; one of repeat and look_ahead
  int64_t min = 0, max = 0;      // repeat; max may be `unlimited`
  bool negative = false;         // look_ahead
  bool plain = true;             // without ^, $ and look-ahead inside
};

// Errors: those of grammar/regex.h.
RegexNode parse_regex(std::string_view pattern);

}  // namespace ingot::grammar
