// BPE by scores (SentencePiece, GGUF's "llama") and BPE by ranked merges (tokenizer.json), where one can be written as
// the other: a piece's score then decides for all pairs that make it, so the pairs of better pieces come first and none
// is missing.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace ingot::checkpoint {

// What GGUF loses of a tokenizer whose space in front is for the first text alone.
inline constexpr const char* prefix_lost =
    "the tokenizer puts a space in front of the first text alone, in GGUF every text behind a special token gets one: "
    "those get other tokens";

// Sets normalizer, decoder and the model's merges and options of a tokenizer.json for `vocabulary` (model "llama").
// Pairs of equal score are ranked by the id of the piece they make, the longer left part first.
// Errors: unsupported for a vocabulary with a character map or removal of extra spaces.
void fill_scored_json(const text::VocabularySpec& vocabulary, nlohmann::ordered_json& document);

// Sets scores, byte types and add_space_prefix of `vocabulary`, whose tokens and types are those of `document`, a
// tokenizer.json with byte fallback. Errors: unsupported when its merges are not those of scores, or for a normalizer
// or pre-tokenizer that is not that of Llama or Gemma. Adds to `lost` what such a vocabulary cannot say.
void fill_scored_vocabulary(const nlohmann::json& document, text::VocabularySpec& vocabulary,
                            std::vector<std::string>& lost);

}  // namespace ingot::checkpoint
