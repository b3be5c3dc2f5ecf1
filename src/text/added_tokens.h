// Added tokens: contents that are searched in the text before it is tokenised (specs/tokenizers.md, section 1).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/byte_trie.h"
#include "text/marked_string.h"

namespace ingot::text {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool special = false;      // skipped on decode, and not searched when the caller does not trust the text
  bool single_word = false;  // only where no word character touches it
  bool lstrip = false;       // takes the white space to its left
  bool rstrip = false;       // takes the white space to its right
  bool normalized = false;   // searched in the normalised text
};

// A part of a text: either one added token, or plain text (no id).
struct TextPart {
  std::optional<int32_t> id;
  std::string_view text;
};

// Searches a set of added tokens: leftmost match, longest on ties.
class AddedTokenMatcher {
 public:
  // An empty content is never found. `content` is what is searched, e.g. the normalised content.
  void add(const AddedToken& token, std::string_view content);

  // Cuts `text` in order. With `parse_special` false the special tokens among the matches stay plain text. A special
  // token that has a byte of `content` is none, and no other token takes the place of one that has none.
  std::vector<TextPart> split(std::string_view text, bool parse_special, std::span<const ByteRange> content = {}) const;

  bool has_special() const { return has_special_; }

 private:
  struct Match {
    int32_t token;
    size_t end;
  };
  std::optional<Match> longest_match(std::string_view text, size_t at, std::span<const ByteRange> content) const;
  bool counts(const AddedToken& token, std::string_view text, size_t at, size_t end,
              std::span<const ByteRange> content) const;
  // Calls `each(token, end)` for every token whose content begins at text[at], shorter ones first.
  template <class Each>
  void for_each_match(std::string_view text, size_t at, Each each) const;

  std::vector<AddedToken> tokens_;
  ByteTrie contents_;               // to an index into tokens_
  std::array<bool, 256> starts_{};  // first bytes of contents
  bool has_special_ = false;
};

}  // namespace ingot::text
