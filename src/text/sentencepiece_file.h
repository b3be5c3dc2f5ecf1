// Parsing and serialising SentencePiece models (tokenizer.model), a protocol buffer: src/sentencepiece_model.proto of
// github.com/google/sentencepiece.
#pragma once

#include <string>
#include <string_view>

#include "text/tokenizer.h"

namespace ingot::text {

// The vocabulary of a tokenizer.model: `model` is "llama" (BPE by scores) or "t5" (unigram); user-defined pieces are
// matched by the model inside a text. Unknown fields are skipped, as in every protocol buffer. Errors: corrupt;
// unsupported, by name: other model types, models that treat white space as a suffix.
VocabularySpec parse_sentencepiece(std::string_view bytes, std::string_view name);

// A serialised model with these pieces, for the SentencePiece library. `vocabulary.model` is "llama" or "t5".
std::string write_sentencepiece(const VocabularySpec& vocabulary);

}  // namespace ingot::text
