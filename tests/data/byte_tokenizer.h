// A tokenizer in which every printable ASCII character, space and line feed is one token, and a ChatML template.
#pragma once

#include <memory>
#include <string>

#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace ingot::data {

constexpr int32_t bos = 0, eos = 1, im_start = 2, im_end = 3, pad = 4;

inline std::unique_ptr<text::Tokenizer> byte_tokenizer(bool add_bos = true, bool add_eos = false, bool has_eos = true) {
  text::VocabularySpec spec;
  spec.name = "test";
  spec.model = "gpt2";
  spec.tokens = {"<s>", "</s>", "<|im_start|>", "<|im_end|>", "<pad>"};
  spec.token_types.assign(spec.tokens.size(), 3);
  for (char c = '!'; c <= '~'; ++c) spec.tokens.emplace_back(1, c);
  spec.tokens.emplace_back("\xc4\xa0");  // the byte-level BPE character of space
  spec.tokens.emplace_back("\xc4\x8a");  // the byte-level BPE character of line feed
  spec.token_types.resize(spec.tokens.size(), 1);
  spec.bos_id = bos;
  if (has_eos) spec.eos_id = eos;
  spec.pad_id = pad;
  spec.add_bos = add_bos;
  spec.add_eos = add_eos;
  return text::Tokenizer::from_vocabulary(std::move(spec));
}

// Like common templates, it writes BOS itself and raises an exception for what it does not support.
inline text::ChatTemplate chat_template() {
  return {
      "{{ bos_token }}{% if tools %}{{ 'tools:' + (tools | length | string) }}{% endif %}"
      "{% for message in messages %}"
      "{% if message['role'] == 'clown' %}{{ raise_exception('no clowns') }}{% endif %}"
      "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}{% endfor %}"
      "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
      "test template"};
}

}  // namespace ingot::data
