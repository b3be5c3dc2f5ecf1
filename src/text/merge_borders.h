// Positions where a text can be split so that BPE of the parts equals BPE of the whole: between two characters that no
// merge joins. For character-level vocabularies, which have no pre-tokenizer; short parts can be cached.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "text/unicode.h"

namespace ingot::text {

class MergeBorders {
 public:
  // Registers a merge of two nonempty pieces: there is no split between a character like the last of `left` and one
  // like the first of `right`.
  void join(std::string_view left, std::string_view right) { joined_[last_kind(left)][kind_at(right, 0).kind] = true; }

  // There is never a split before a character like the first of `right`, which is not empty.
  void join_to_all(std::string_view right) {
    for (auto& row : joined_) row[kind_at(right, 0).kind] = true;
  }

  // The end of the part that starts at `at`, which must be inside the text.
  size_t end_of_part(std::string_view text, size_t at) const {
    Kind before = kind_at(text, at);
    for (at += before.size; at < text.size();) {
      const Kind kind = kind_at(text, at);
      if (!joined_[before.kind][kind.kind]) break;
      at += kind.size;
      before = kind;
    }
    return at;
  }

 private:
  // Character kinds: each ASCII character, U+2581 (a space in such vocabularies), and all other characters together.
  static constexpr size_t space_mark = 128, other = 129, num_kinds = 130;
  struct Kind {
    size_t kind;
    size_t size;  // bytes
  };

  static Kind kind_at(std::string_view text, size_t at) {
    const auto lead = static_cast<uint8_t>(text[at]);
    if (lead < 128) return {lead, 1};
    if (text.substr(at, 3) == "\xE2\x96\x81") return {space_mark, 3};
    return {other, decode_utf8(text, at).size};
  }

  static size_t last_kind(std::string_view text) {
    if (text.ends_with("\xE2\x96\x81")) return space_mark;
    return static_cast<uint8_t>(text.back()) < 128 ? static_cast<size_t>(text.back()) : other;
  }

  std::array<std::array<bool, num_kinds>, num_kinds> joined_{};
};

}  // namespace ingot::text
