// The syntax tree of a regular expression.
#pragma once

#include <string_view>
#include <vector>

#include "grammar/characters.h"

namespace ingot::grammar {

struct RegexNode {
  enum class Kind : uint8_t { set, sequence, choice, repeat, start, end, look_ahead };
  Kind kind = Kind::sequence;
  CharacterSet set;              // of set
  std::vector<RegexNode> parts;  // of sequence and choice; repeat and look_ahead have exactly one
  int64_t min = 0, max = 0;      // of repeat; max may be `unlimited`
  bool negative = false;         // of look_ahead
  bool plain = true;             // contains no ^, $ or look-ahead
};

// Errors: those of grammar/regex.h.
RegexNode parse_regex(std::string_view pattern);

}  // namespace ingot::grammar
