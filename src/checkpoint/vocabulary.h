// Conversion of vocabularies between formats: tokenizer.json, tokenizer.model, and the keys of GGUF files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace ingot::checkpoint {

// GGUF has no key for tokens that strip the white space after them (rstrip). Ingot, like llama.cpp, recognises Phi-3 by
// the model's name (general.name): there all control, unknown and user-defined tokens strip it, except three.
bool is_phi3(std::string name);
std::vector<int32_t> rstrip_of_phi3(const text::VocabularySpec& vocabulary);

// Returns the text of a tokenizer.json that yields the same ids as the vocabulary of a GGUF file. Tokens of type unused
// (names that pad a vocabulary) are left out. Errors: unsupported for an unknown model or pre-tokenizer; corrupt.
std::string tokenizer_json(const text::VocabularySpec& vocabulary);

struct GgufVocabulary {
  text::VocabularySpec spec;
  // One sentence for each property that GGUF cannot express, with the texts that are tokenized differently as a result.
  std::vector<std::string> lost;
};

// Converts a tokenizer.json to a vocabulary for a GGUF file, padded to `size` tokens with "[PAD<id>]" of type unused.
// Supports byte-level BPE, and BPE with byte fallback whose merges follow scores (checkpoint/scored_vocabulary.h).
// Tokens that strip the white space after them are returned in `spec.rstrip`, for the caller to handle.
// Errors: corrupt, also when there are more than `size` tokens; unsupported, by name, for what GGUF cannot express:
// other models, and pre-tokenizers and normalizers outside the known names.
GgufVocabulary gguf_vocabulary_of(std::string_view tokenizer_json, const std::string& source,
                                  const text::SpecialTokens& special, int64_t size);

// Converts a SentencePiece model to a vocabulary for a GGUF file, padded likewise. Errors: corrupt; unsupported, by
// name: settings for which GGUF has no key.
GgufVocabulary gguf_vocabulary_of(text::VocabularySpec sentencepiece, int64_t size);

}  // namespace ingot::checkpoint
