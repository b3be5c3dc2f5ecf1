// Conversion between BPE by scores (SentencePiece, GGUF's "llama") and BPE by ranked merges (tokenizer.json). It is
// possible when a merge's rank depends only on the score of the piece it makes: merges that make a piece of higher
// score come first, and every pair that makes a piece is a merge.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace ingot::checkpoint {

// The loss, in GGUF, of a tokenizer that puts a space only in front of the first text.
inline constexpr const char* prefix_lost =
    "the tokenizer puts a space only in front of the first text, but GGUF also in front of texts after a special "
    "token: those get other tokens";

// Sets normalizer, decoder and the model's merges and options of a tokenizer.json for `vocabulary` (model "llama").
// Pairs of equal score are ranked by the id of the piece they make, the longer left part first.
// Errors: unsupported for a vocabulary with a character map or removal of extra spaces.
void merges_from_scores(const text::VocabularySpec& vocabulary, nlohmann::ordered_json& document);

// Sets scores, byte types and add_space_prefix of `vocabulary`, whose tokens and types are those of `document`, a
// tokenizer.json with byte fallback. Errors: unsupported when its merges are not in the order of scores, or for a
// normalizer or pre-tokenizer that is not that of Llama or Gemma. Adds to `lost` the properties that such a vocabulary
// cannot express.
void scores_from_merges(const nlohmann::json& document, text::VocabularySpec& vocabulary,
                        std::vector<std::string>& lost);

}  // namespace ingot::checkpoint
