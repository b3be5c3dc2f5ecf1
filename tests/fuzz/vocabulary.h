// The GGUF vocabulary fuzz target: it creates the file's tokenizer, uses it, and writes a tokenizer.json, which must be
// valid.
#pragma once

#include <span>

#include "checkpoint/text_assets.h"
#include "checkpoint/vocabulary.h"
#include "formats/gguf.h"
#include "tests/fuzz/tokenizers.h"

namespace ingot::checkpoint::fuzz {

// True when the file contains a valid vocabulary.
inline bool read_vocabulary(std::string_view bytes) {
  text::VocabularySpec vocabulary;
  try {
    const formats::GgufFile file(std::as_bytes(std::span(bytes)), "fuzz");
    vocabulary = gguf_vocabulary(file.metadata(), "fuzz");
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::internal) throw;
    return false;
  }
  if (!text::fuzz::use([&] { return text::Tokenizer::from_vocabulary(vocabulary); }, bytes)) return false;
  text::fuzz::use([&] { return text::Tokenizer::from_json(tokenizer_json(vocabulary), "made"); }, bytes);
  return true;
}

}  // namespace ingot::checkpoint::fuzz
