// The fuzz targets of templates, also used by the corpus tests. They return normally or throw ingot::Error.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/error.h"
#include "text/byte_alphabet.h"
#include "text/chat_template.h"
#include "text/jinja/jinja.h"
#include "text/tokenizer.h"

namespace ingot::text::fuzz {

inline bool refused(const Error& error) {
  if (error.kind() == ErrorKind::internal) __builtin_trap();
  return false;
}

inline void require(bool holds) {
  if (!holds) __builtin_trap();
}

// The ranges must lie in the text, be in order, and not touch.
inline void check_content(std::string_view text, const ByteRanges& content) {
  size_t before = 0;
  for (const auto& [begin, end] : content) {
    require((begin > before || (begin == 0 && before == 0)) && end > begin && end <= text.size());
    before = end;
  }
}

// Every string of the caller contains it. A template can write it only if its source contains it or an escape.
constexpr std::string_view callers_mark = "\xEE\x80\x80";

// Renders a template with variables of every type under small limits. False when it is refused.
inline bool render_template(std::string_view source) {
  static const auto variables = nlohmann::ordered_json::parse(
      R"({"messages": [{"role": "user", "content": " a\ue000 b\n"}, {"role": "assistant", "content": "\u00e9\ue000c"}],
          "tools": null, "add_generation_prompt": true, "bos_token": "<s>\ue000", "items": [1, 2.5, "x\ue000", null],
          "d": {"a": {"b": 1}}, "users": [{"name": "Al\ue000", "age": 3, "\ue000": 1}, {"name": "\ue000Bo"}]})");
  try {
    const jinja::Template parsed(source, "fuzz");
    const jinja::Rendered rendered =
        parsed.render(variables, {.max_steps = 20'000, .max_memory = 1 << 22, .max_output = 1 << 16, .now = 0});
    check_content(rendered.text, rendered.content);
    if (source.find(callers_mark) != std::string_view::npos || source.find('\\') != std::string_view::npos) return true;
    for (size_t at = rendered.text.find(callers_mark); at != std::string::npos;
         at = rendered.text.find(callers_mark, at + 1)) {
      const ByteRanges inside = clip(rendered.content, at, at + callers_mark.size());
      require(inside == ByteRanges{{0, callers_mark.size()}});
    }
    return true;
  } catch (const Error& error) {
    return refused(error);
  }
}

// A tokenizer with one token for every byte and a few special ones.
inline const Tokenizer& byte_tokenizer() {
  static const std::unique_ptr<Tokenizer> tokenizer = [] {
    VocabularySpec spec;
    spec.name = "bytes";
    spec.model = "gpt2";
    spec.pre = "gpt-2";
    spec.tokens = {"<s>", "</s>", "<|user|>", "<|", "a"};
    spec.token_types.assign(spec.tokens.size(), token_control);
    for (int byte = 0; byte < 256; ++byte) {
      spec.tokens.push_back(encode_byte_alphabet(std::string(1, static_cast<char>(byte))));
    }
    spec.token_types.resize(spec.tokens.size(), token_normal);
    return Tokenizer::from_vocabulary(std::move(spec));
  }();
  return *tokenizer;
}

// The tokens must concatenate to the text, and no control token may contain content bytes.
inline void check_tokens(const ChatText& chat) {
  const Tokenizer& tokenizer = byte_tokenizer();
  size_t at = 0;
  for (const int32_t id : tokenizer.encode(chat.text, {.add_special_tokens = false, .content = chat.content})) {
    const std::string& bytes = tokenizer.token_bytes(id);
    require(chat.text.compare(at, bytes.size(), bytes) == 0);
    require(!tokenizer.is_control(id) || !touches(chat.content, at, at + bytes.size()));
    at += bytes.size();
  }
  require(at == chat.text.size());
}

// Input: a line of JSON messages, then a template. The answer spans must lie in the text in order, and the text is
// tokenized.
inline bool render_chat(std::string_view input) {
  const size_t line = input.find('\n');
  if (line == std::string_view::npos) return false;
  try {
    const auto messages = nlohmann::ordered_json::parse(input.substr(0, line), nullptr, false);
    if (messages.is_discarded()) return false;
    const ChatTemplate chat(input.substr(line + 1), "fuzz");
    ChatOptions options{.add_generation_prompt = true, .bos_token = "<s>", .eos_token = "</s>"};
    options.render = {.max_steps = 20'000, .max_memory = 1 << 22, .max_output = 1 << 16, .now = 0};
    const ChatSpans spans = chat.render_spans(messages, nullptr, options);
    size_t before = 0;
    for (const auto& [begin, end] : spans.assistant) {
      require(begin >= before && end >= begin && end <= spans.text.size());
      before = end;
    }
    check_content(spans.text, spans.content);
    check_tokens(spans);
    return true;
  } catch (const Error& error) {
    return refused(error);
  }
}

}  // namespace ingot::text::fuzz
