// The steps of a tokenizer.json around its model: normalizer, pre-tokenizer, decoder, post-processor.
// Errors of all: corrupt; unsupported, naming the component.
#pragma once

#include "text/json_reader.h"
#include "text/tokenizer_parts.h"

namespace ingot::text {

// `root` is the whole document. Each fills its part of `parts`.
void read_normalizers(const Reader& root, TokenizerParts& parts);
// Returns whether the steps end in ByteLevel, so that the model works on bytes.
bool read_pre_tokenizers(const Reader& root, TokenizerParts& parts);
// Also unsupported when the decoder does not end in one text, or has not the bytes of the pre-tokenizer.
void read_decoders(const Reader& root, bool byte_level, TokenizerParts& parts);
void read_post_processors(const Reader& root, TokenizerParts& parts);

}  // namespace ingot::text
