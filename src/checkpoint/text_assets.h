// The text processing of a model: tokenizer, chat template, end-of-text ids, sampling defaults.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/model_source.h"
#include "formats/gguf_metadata.h"
#include "text/tokenizer.h"
#include "text/tokenizer_config.h"

namespace ingot::checkpoint {

// generation_config.json; the server chooses values that are absent.
struct GenerationDefaults {
  std::optional<bool> do_sample;
  std::optional<double> temperature;
  std::optional<double> top_p;
  std::optional<int64_t> top_k;
  std::optional<double> repetition_penalty;
};

struct TextAssets {
  std::unique_ptr<text::Tokenizer> tokenizer;  // null when the model has no tokenizer files
  std::optional<std::string> chat_template;    // Jinja
  std::string bos_text;                        // the template's bos_token; "" when there is none
  std::string eos_text;
  std::optional<int32_t> bos;
  std::vector<int32_t> eos;  // any of them ends generation; ascending
  GenerationDefaults generation;
};

// Hugging Face: reads tokenizer.json, or without one tokenizer.model; tokenizer_config.json, special_tokens_map.json,
// chat_template.jinja (takes precedence over the template in tokenizer_config.json), generation_config.json,
// config.json, all optional. End-of-text ids are those of generation_config.json, else of config.json, else the
// tokenizer's eos token.
// GGUF: reads the keys tokenizer.*; end-of-text ids are eos, eot and eom.
// Errors: those of text::Tokenizer; corrupt; unsupported for a folder with vocab.json as its only tokenizer file.
TextAssets load_text(const ModelSource& source);

// Reads the keys tokenizer.ggml.* of a GGUF file; `source` names it. ErrorKind::not_found when it has no vocabulary.
text::VocabularySpec gguf_vocabulary(const formats::GgufMetadata& metadata, const std::string& source);

// Reads the vocabulary of a folder's tokenizer.model (SentencePiece), with the settings of its tokenizer_config.json
// and the tokens of added_tokens.json. As in transformers, a BPE model adds BOS in front of a text and a unigram model
// adds EOS at its end, unless the settings say otherwise. `eos_ids`: from generation_config.json or config.json.
// Errors: those of parse_sentencepiece; corrupt.
text::VocabularySpec sentencepiece_vocabulary(const std::filesystem::path& folder,
                                              const std::vector<int32_t>& eos_ids = {});

// Reads tokenizer_config.json, special_tokens_map.json and chat_template.jinja of a folder; all are optional.
text::TokenizerConfig hf_tokenizer_config(const std::filesystem::path& folder);

}  // namespace ingot::checkpoint
