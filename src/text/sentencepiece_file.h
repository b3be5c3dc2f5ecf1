// The bytes of SentencePiece models (tokenizer.model): a protocol buffer, specs/tokenizers.md, section 2.
#pragma once

#include <string>
#include <string_view>

#include "text/tokenizer.h"

namespace ingot::text {

// The vocabulary of a tokenizer.model: `model` is "llama" (BPE by scores) or "t5" (unigram); user-defined pieces are
// found inside a text. Unknown fields are passed over, as protocol buffers want it.
// Errors: corrupt; unsupported, by name: other models, pieces with white space behind words.
VocabularySpec parse_sentencepiece(std::string_view bytes, std::string_view name);

// A model with the same pieces that the SentencePiece library loads. `vocabulary.model` is "llama" or "t5".
std::string write_sentencepiece(const VocabularySpec& vocabulary);

}  // namespace ingot::text
