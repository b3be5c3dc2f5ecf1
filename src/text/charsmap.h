// The "precompiled charsmap" of SentencePiece normalisers: a double-array trie that maps byte strings to replacements.
// Layout: src/normalizer.cc of github.com/google/sentencepiece; the units of the trie are those of darts-clone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/growth.h"

namespace ingot::text {

class Charsmap {
 public:
  // Validates every reachable unit, so that lookups (ours and the SentencePiece library's) stay in bounds. Errors:
  // corrupt, naming `name`; unsupported for a replacement that is too long for its key (text/growth.h).
  Charsmap(std::string_view blob, std::string_view name);

  // The replacement of the shortest key that is a prefix of `text`; nullopt when there is none.
  std::optional<std::string_view> replacement(std::string_view text) const;

  // Normalises like the Precompiled normaliser of the tokenizers library: a grapheme cluster below 6 bytes that begins
  // with a key becomes that key's replacement; other clusters are replaced character by character. Errors: unsupported
  // beyond `limit`.
  std::string apply(std::string_view text, GrowthLimit& limit) const;

 private:
  std::vector<uint32_t> units_;
  std::string replacements_;  // NUL-terminated strings
};

}  // namespace ingot::text
