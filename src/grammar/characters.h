// Sets of Unicode characters, and their UTF-8 encodings as terms.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "grammar/term.h"

namespace ingot::grammar {

inline constexpr uint32_t max_code_point = 0x10FFFF;
inline constexpr uint32_t first_surrogate = 0xD800, last_surrogate = 0xDFFF;

std::string utf8(uint32_t code_point);

// A set of characters as ranges in ascending order that neither overlap nor touch. Surrogates (U+D800 to U+DFFF) are
// never members.
class CharacterSet {
 public:
  struct Range {
    uint32_t first, last;
    bool operator==(const Range&) const = default;
  };

  CharacterSet() = default;
  explicit CharacterSet(std::vector<Range> ranges);
  static CharacterSet all() { return CharacterSet({{0, max_code_point}}); }

  const std::vector<Range>& ranges() const { return ranges_; }
  CharacterSet complement() const;

 private:
  std::vector<Range> ranges_;
};

// The term whose strings are the UTF-8 encodings of one character of the set.
TermId encoded(TermPool& terms, const CharacterSet& set);

}  // namespace ingot::grammar
