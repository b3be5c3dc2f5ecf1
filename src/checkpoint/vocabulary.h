// Vocabularies between formats: tokenizer.json, tokenizer.model, and the keys of GGUF files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace ingot::checkpoint {

// GGUF has no key for tokens that take the white space behind them. llama.cpp, and so we, know those of Phi-3 by the
// model's name (general.name): all that are control, unknown or user-defined, but for three.
bool is_phi3(std::string name);
std::vector<int32_t> rstrip_of_phi3(const text::VocabularySpec& vocabulary);

// The text of a tokenizer.json that gives the same ids as the vocabulary of a GGUF file. Tokens of type unused (names
// that pad a vocabulary) are left out. Errors: unsupported for a model or pre-tokenizer that is not known; corrupt.
std::string tokenizer_json(const text::VocabularySpec& vocabulary);

struct GgufVocabulary {
  text::VocabularySpec spec;
  std::vector<std::string>
      lost;  // what GGUF has no words for, and which texts get other tokens by that: a sentence each
};

// The vocabulary of a tokenizer.json as a GGUF file has it, padded to `size` tokens with "[PAD<id>]" of type unused:
// byte-level BPE, and BPE with byte fallback whose merges are those of scores (checkpoint/scored_vocabulary.h).
// Tokens that take the white space behind them stay in `spec.rstrip`, for the caller to see to.
// Errors: corrupt, also when there are more than `size` tokens; unsupported, by name, for what GGUF has no words for:
// other models, and pre-tokenizers and normalizers outside the known names.
GgufVocabulary gguf_vocabulary_of(std::string_view tokenizer_json, const std::string& source,
                                  const text::SpecialTokens& special, int64_t size);

// The vocabulary of a SentencePiece model as a GGUF file has it, padded likewise. Errors: corrupt; unsupported, by
// name: settings of which GGUF has no key.
GgufVocabulary gguf_vocabulary_of(text::VocabularySpec sentencepiece, int64_t size);

}  // namespace ingot::checkpoint
