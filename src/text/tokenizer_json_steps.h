// Readers for the steps of a tokenizer.json around its model: normalizer, pre-tokenizer, decoder, post-processor.
// Errors of all: corrupt; unsupported, naming the component.
#pragma once

#include "text/json_reader.h"
#include "text/tokenizer_parts.h"

namespace ingot::text {

// `root` is the whole document. Each function fills its part of `parts`.
void read_normalizers(const Reader& root, TokenizerParts& parts);
// Returns whether the steps end with ByteLevel, so that the model works on bytes.
bool read_pre_tokenizers(const Reader& root, TokenizerParts& parts);
// Errors: also unsupported when the decoder does not fuse the tokens into one text, or when only one of decoder and
// pre-tokenizer is ByteLevel.
void read_decoders(const Reader& root, bool byte_level, TokenizerParts& parts);
void read_post_processors(const Reader& root, TokenizerParts& parts);

}  // namespace ingot::text
