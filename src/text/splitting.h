// The pre-tokenizers that GGUF files call by a name (tokenizer.ggml.pre), as what they stand for.
// Names and patterns: specs/tokenizers.md and specs/gguf.md.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace ingot::text {

struct Splitting {
  std::string_view name;
  // Of isolating Splits in front of ByteLevel, one after the other; none: the pattern of GPT-2, ByteLevel's own.
  std::span<const std::string_view> patterns;
  bool individual_digits = false;  // a Digits step in front: every \p{N} character by itself
  bool nfc = false;                // the text is normalised to form C first
  bool ignore_merges = false;      // a pre-token that is a token is emitted at once
  bool add_bos = false;            // files that do not say whether BOS is added expect it
};

// All of them. Of several names for one splitting, the first is the one to write.
std::span<const Splitting> splittings();

// Null when the name is not known. The empty name is "default".
const Splitting* find_splitting(std::string_view name);

// The names, with commas between them, for hints.
std::string splitting_names();

}  // namespace ingot::text
