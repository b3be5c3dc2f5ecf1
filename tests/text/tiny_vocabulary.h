// Vocabularies for tiny random models: every token is a byte or a special token.
#pragma once

#include "text/tokenizer.h"

namespace ingot::text {

// Three special tokens (<|im_end|> has id 2), the printable ASCII characters, space and line feed.
inline VocabularySpec ascii_vocabulary() {
  VocabularySpec vocabulary;
  vocabulary.name = "tiny";
  vocabulary.model = "gpt2";
  vocabulary.pre = "gpt-2";
  vocabulary.tokens = {"<pad>", "<|im_start|>", "<|im_end|>"};
  vocabulary.token_types.assign(3, token_control);
  for (char c = '!'; c <= '~'; ++c) vocabulary.tokens.emplace_back(1, c);
  vocabulary.tokens.insert(vocabulary.tokens.end(),
                           {"\xc4\xa0", "\xc4\x8a"});  // the byte-level characters of space and line feed
  vocabulary.token_types.resize(vocabulary.tokens.size(), token_normal);
  return vocabulary;
}

// Adds the byte 0xC3 and the bytes that may follow it, so that two tokens form one character, such as e with an acute
// accent. 130 tokens in total.
inline VocabularySpec latin_vocabulary() {
  VocabularySpec vocabulary = ascii_vocabulary();
  vocabulary.tokens.emplace_back("\xc3\x83");  // the byte-level character of 0xC3
  for (int byte = 0xA1; byte <= 0xBF; ++byte) {
    if (byte != 0xAD) vocabulary.tokens.push_back({'\xc2', static_cast<char>(byte)});  // its own byte-level character
  }
  vocabulary.token_types.resize(vocabulary.tokens.size(), token_normal);
  return vocabulary;
}

}  // namespace ingot::text
