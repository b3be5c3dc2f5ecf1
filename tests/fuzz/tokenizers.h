// The fuzz targets of tokenizers, also used by the corpus tests: they read a file and, if it is valid, encode and
// decode a text. They return normally or throw ingot::Error.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include "base/error.h"
#include "text/sentencepiece_file.h"
#include "text/tokenizer.h"

namespace ingot::text::fuzz {

// A text that is hard for tokenizers; the fuzzer adds `tail`.
inline std::string sample(std::string_view tail) {
  std::string text = "Hello  world\n\xC3\xA9 e\xCC\x81 \xE4\xBD\xA0 \xEF\xAC\x81 <s>a</s> 12'll \xFF";
  text.push_back('\0');
  return text.append(tail.substr(0, 2048));
}

// True when `load` returns a tokenizer.
template <class Load>
bool use(Load load, std::string_view tail) {
  try {
    const auto tokenizer = load();
    const std::string text = sample(tail);
    const std::vector<int32_t> ids = tokenizer->encode(text);
    tokenizer->decode(ids, true);
    ByteRanges content;  // every other run of five bytes
    for (size_t at = tail.size() % 5; at < text.size(); at += 10)
      content.emplace_back(at, std::min(at + 5, text.size()));
    tokenizer->encode(text, {.content = content});
    tokenizer->encode(text, {.parse_special = false});
    StreamDecoder decoder(*tokenizer);
    for (const int32_t id : ids) decoder.push(id);
    decoder.finish();
    return true;
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::internal) throw;
    return false;
  }
}

inline bool read_tokenizer_json(std::string_view bytes) {
  return use([&] { return Tokenizer::from_json(bytes, "fuzz"); }, bytes);
}

inline bool read_sentencepiece(std::string_view bytes) {
  return use([&] { return Tokenizer::from_vocabulary(parse_sentencepiece(bytes, "fuzz")); }, bytes);
}

}  // namespace ingot::text::fuzz
