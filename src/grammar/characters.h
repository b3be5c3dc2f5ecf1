// Sets of Unicode characters, and their bytes.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "grammar/term.h"

namespace ingot::grammar {

inline constexpr uint32_t max_code_point = 0x10FFFF;

// Ranges in ascending order that do not touch. Surrogates (U+D800 to U+DFFF) are never members.
class CharacterSet {
 public:
  struct Range {
    uint32_t first, last;
    bool operator==(const Range&) const = default;
  };

  CharacterSet() = default;
  explicit CharacterSet(std::vector<Range> ranges);
  static CharacterSet all() { return CharacterSet({{0, max_code_point}}); }
  static CharacterSet of(std::string_view ascii);

  const std::vector<Range>& ranges() const { return ranges_; }
  bool empty() const { return ranges_.empty(); }
  CharacterSet operator|(const CharacterSet& other) const;
  CharacterSet operator&(const CharacterSet& other) const;
  CharacterSet complement() const;

 private:
  std::vector<Range> ranges_;
};

// One character of the set, in UTF-8.
TermId encoded(TermPool& terms, const CharacterSet& set);

}  // namespace ingot::grammar
