// The "precompiled charsmap" of SentencePiece normalisers: a double-array trie of byte strings, and what each becomes.
// Layout: specs/tokenizers.md, section 2; the units of the trie are those of darts-clone.
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
  // Checks every unit that a text can reach, so that look-ups (ours and the library's) stay inside.
  // Errors: corrupt, naming `name`; unsupported for a replacement that is too long for its key (text/growth.h).
  Charsmap(std::string_view blob, std::string_view name);

  // What the shortest key that `text` begins with becomes; nothing when there is none.
  std::optional<std::string_view> replacement(std::string_view text) const;

  // Normalises as the Precompiled normaliser of the tokenizers library: a grapheme cluster below 6 bytes that begins
  // with a key becomes that key's replacement, others go character by character.
  // Errors: unsupported beyond `limit`.
  std::string apply(std::string_view text, GrowthLimit& limit) const;

 private:
  std::vector<uint32_t> units_;
  std::string replacements_;  // separated by NUL
};

}  // namespace ingot::text
