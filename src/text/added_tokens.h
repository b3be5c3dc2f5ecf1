// Added tokens: strings that are matched in the text before it is tokenized (as in github.com/huggingface/tokenizers).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/byte_trie.h"
#include "text/tainted_string.h"

namespace ingot::text {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool special = false;      // skipped on decode; a control token
  bool control = false;      // a control token that decoding keeps
  bool single_word = false;  // matched only where no word character is adjacent
  bool lstrip = false;       // absorbs the white space to its left
  bool rstrip = false;       // absorbs the white space to its right
  bool normalized = false;   // matched in the normalised text

  // Control tokens are never produced from content, nor from text that the caller does not trust.
  bool is_control() const { return special || control; }
};

// A part of a text: either one added token, or plain text (no id).
struct TextPart {
  std::optional<int32_t> id;
  std::string_view text;
};

// Finds added tokens in a text: leftmost match, longest on ties.
class AddedTokenMatcher {
 public:
  // `content` is the string to match, e.g. the normalised content; an empty one never matches.
  void add(const AddedToken& token, std::string_view content);

  // Splits `text` into added tokens and the plain text between them, in order. Control tokens stay plain text if
  // `parse_special` is false or if they overlap `content`. No other token that overlaps `content` replaces a control
  // token that does not. Unless null, `num_steps` is increased by the number of bytes compared.
  std::vector<TextPart> split(std::string_view text, bool parse_special, std::span<const ByteRange> content = {},
                              size_t* num_steps = nullptr) const;

  bool has_control() const { return has_control_; }

 private:
  struct Search {
    std::string_view text;
    std::span<const ByteRange> content;
    size_t* num_steps;
  };
  struct Match {
    int32_t token;  // an index into tokens_
    size_t end;
  };
  const AddedToken& token_of(const Match& match) const { return tokens_[static_cast<size_t>(match.token)]; }
  std::optional<Match> longest_match(const Search& search, size_t at) const;
  // Whether search.content permits the match at text[at].
  bool may_match(const Search& search, size_t at, const Match& match) const;
  // Calls `each(token, end)` for every token whose content begins at text[at], shorter ones first.
  template <class Each>
  void for_each_match(const Search& search, size_t at, Each each) const;

  std::vector<AddedToken> tokens_;
  ByteTrie contents_;               // maps contents to indices into tokens_
  std::array<bool, 256> starts_{};  // first bytes of contents
  bool has_control_ = false;
};

}  // namespace ingot::text
