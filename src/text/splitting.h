// The pre-tokenizers that GGUF files name in tokenizer.ggml.pre. Names and patterns: src/llama-vocab.cpp of
// github.com/ggml-org/llama.cpp.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace ingot::text {

struct PreTokenizerPreset {
  std::string_view name;
  // Patterns of Split steps (isolated) before ByteLevel, applied in order; none: the GPT-2 pattern of ByteLevel itself.
  std::span<const std::string_view> patterns;
  bool individual_digits = false;  // a Digits step first: every \p{N} character by itself
  bool nfc = false;                // normalise to NFC first
  bool ignore_merges = false;      // a pre-token that is in the vocabulary is emitted without merging
  bool add_bos = false;            // files without add_bos_token expect BOS
};

// All known pre-tokenizers. Of several names for the same one, the first is the one to write to files.
std::span<const PreTokenizerPreset> splittings();

// nullptr for an unknown name. The empty name means "default".
const PreTokenizerPreset* find_pre_tokenizer_preset(std::string_view name);

// The names, comma-separated, for hints.
std::string splitting_names();

}  // namespace ingot::text
