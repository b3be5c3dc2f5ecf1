// Tries texts against grammars, byte by byte and by masks.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "grammar/matcher.h"

namespace ingot::grammar {

// Every byte, some pieces of JSON, and one end token as the last id.
inline std::shared_ptr<const Vocabulary> small_vocabulary() {
  static const auto vocabulary = [] {
    std::vector<std::string> tokens;
    for (int b = 0; b < 256; ++b) tokens.emplace_back(1, static_cast<char>(b));
    for (const char* word :
         {"{\"", "\":", "\", \"", "\",\"", "\"}", "true", "false", "null", " \"",      ": ",  ", ",       "a\"",   "ab",
          "abc", "12",  "123",    "1.5",   "}}",  "]}",   "[{",    "\n  ", "\xC3\xA9", "e\"", "ab\": \"", "x\": 1"}) {
      tokens.emplace_back(word);
    }
    tokens.emplace_back("<end>");
    const auto end = static_cast<int32_t>(tokens.size()) - 1;
    return std::make_shared<const Vocabulary>(tokens, std::vector<int32_t>{end});
  }();
  return vocabulary;
}

inline std::shared_ptr<const TokenGrammar> with_tokens(GrammarPtr grammar, const StateLimits& limits = {}) {
  return std::make_shared<const TokenGrammar>(std::move(grammar), small_vocabulary(), limits);
}

// Whether the whole text is accepted.
inline bool accepts(const GrammarPtr& grammar, std::string_view text) {
  Matcher matcher(with_tokens(grammar));
  return matcher.accept_bytes(text) && matcher.may_end();
}

struct Sample {
  const char* schema;
  std::vector<const char*> valid, invalid;
};

inline void expect(const Sample& sample, const JsonOptions& options = {}) {
  const GrammarPtr grammar = compile_json_schema(sample.schema, options);
  for (const char* text : sample.valid) EXPECT_TRUE(accepts(grammar, text)) << sample.schema << "\n" << text;
  for (const char* text : sample.invalid) EXPECT_FALSE(accepts(grammar, text)) << sample.schema << "\n" << text;
}

// The error of a schema as "kind: message", or "none".
inline std::string refusal(std::string_view schema, const JsonOptions& options = {}) {
  try {
    compile_json_schema(schema, options);
  } catch (const Error& error) {
    return std::string(name(error.kind())) + ": " + error.message();
  }
  return "none";
}

inline bool in_mask(const std::vector<uint32_t>& mask, int32_t id) {
  return (mask[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0;
}

}  // namespace ingot::grammar
