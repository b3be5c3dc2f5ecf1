// Sets of Unicode characters, and how they are written in bytes.
#pragma once

#include <cstdint>
#include <string>
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

// How a character of a text stands in the bytes that a model writes.
enum class Encoding : uint8_t {
  utf8,
  // Inside the quotes of a JSON string, written in one way only: as itself; " and \ and control characters escaped, by
  // \b \f \n \r \t where there is such an escape, by \u00 and two lower-case digits otherwise.
  json,
};

// One character of the set.
TermId encoded(TermPool& terms, const CharacterSet& set, Encoding encoding);

// A text of UTF-8 as it is encoded.
std::string encoded_text(std::string_view text, Encoding encoding);
TermId encoded(TermPool& terms, std::string_view text, Encoding encoding);

}  // namespace ingot::grammar
