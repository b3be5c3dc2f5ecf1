// Where a text can be cut so that the parts, merged one by one, give what the whole gives: between two characters that
// no merge brings together. Vocabularies of characters have no pre-tokenizer to make words, and short parts are what a
// cache can keep.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "text/unicode.h"

namespace ingot::text {

class MergeBorders {
 public:
  // There is a merge of these two, neither empty: what ends like one is not cut from what starts like the other.
  void join(std::string_view left, std::string_view right) { joined_[last_kind(left)][kind_at(right, 0).kind] = true; }

  // What starts like `right`, not empty, is never cut from what stands in front of it.
  void join_to_all(std::string_view right) {
    for (auto& row : joined_) row[kind_at(right, 0).kind] = true;
  }

  // The end of the part that starts at `at`, which is in the text.
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
  // ASCII characters by themselves, U+2581 (a space in such vocabularies), and all others together.
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
