// What a model brings for text: tokenizer, chat template, end-of-text ids, sampling defaults.
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

// generation_config.json; what is unset is for the server to choose.
struct GenerationDefaults {
  std::optional<bool> do_sample;
  std::optional<double> temperature;
  std::optional<double> top_p;
  std::optional<int64_t> top_k;
  std::optional<double> repetition_penalty;
};

struct TextAssets {
  std::unique_ptr<text::Tokenizer> tokenizer;  // null when the model has no tokenizer files at all
  std::optional<std::string> chat_template;    // Jinja
  std::string bos_text;                        // "" when there is none; what the template calls bos_token
  std::string eos_text;
  std::optional<int32_t> bos;
  std::vector<int32_t> eos;  // any of them ends an answer; ascending
  GenerationDefaults generation;
};

// Hugging Face: tokenizer.json, or without one tokenizer.model; tokenizer_config.json, special_tokens_map.json,
// chat_template.jinja (wins over the template in tokenizer_config.json), generation_config.json, config.json, all
// optional. End-of-text
// ids are those of generation_config.json, else of config.json, else the tokenizer's eos token.
// GGUF: the keys tokenizer.*; end-of-text ids are eos, eot and eom.
// Errors: those of text::Tokenizer; corrupt; unsupported for a folder that has a vocab.json only.
TextAssets load_text(const ModelSource& source);

// The keys tokenizer.ggml.* of a GGUF file; `source` names it. ErrorKind::not_found when it has no vocabulary.
text::VocabularySpec gguf_vocabulary(const formats::GgufMetadata& metadata, const std::string& source);

// The vocabulary of a folder's tokenizer.model (SentencePiece), with the settings of its tokenizer_config.json and the
// tokens of added_tokens.json. As transformers does, BOS goes in front of a BPE model's texts and EOS behind a unigram
// model's unless the settings say something else. Errors: those of parse_sentencepiece; corrupt.
// `eos_ids`: of generation_config.json or config.json.
text::VocabularySpec sentencepiece_vocabulary(const std::filesystem::path& folder,
                                              const std::vector<int32_t>& eos_ids = {});

// What tokenizer_config.json, special_tokens_map.json and chat_template.jinja of a folder say; all are optional.
text::TokenizerConfig hf_tokenizer_config(const std::filesystem::path& folder);

}  // namespace ingot::checkpoint
