// Which tokens of Phi-3's vocabulary take the white space behind them. GGUF has no key for that.
#pragma once

#include <cstddef>

#include "text/tokenizer.h"

namespace ingot::text {

// Where the vocabulary says so at all: its special tokens but for three, and </s>, which is user-defined there.
inline bool takes_space_behind(const VocabularySpec& vocabulary, size_t id) {
  if (!vocabulary.special_take_space || vocabulary.token_types.empty()) return false;
  const std::string& token = vocabulary.tokens[id];
  const bool keeps = token == "<unk>" || token == "<s>" || token == "<|endoftext|>";
  return (vocabulary.token_types[id] != token_user_defined && !keeps) || token == "</s>";
}

}  // namespace ingot::text
