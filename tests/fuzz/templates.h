// What the fuzz targets of templates do with their input, also used by the test that replays their corpora: an
// ingot::Error about the input is the only way out but success.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.h"
#include "text/chat_template.h"
#include "text/jinja.h"

namespace ingot::text::fuzz {

inline bool refused(const Error& error) {
  if (error.kind() == ErrorKind::internal) __builtin_trap();
  return false;
}

// A template, rendered with variables of every kind under small limits. False when it is refused.
inline bool render_template(std::string_view source) {
  static const auto variables = nlohmann::ordered_json::parse(
      R"({"messages": [{"role": "user", "content": " a b\n"}, {"role": "assistant", "content": "\u00e9c"}], "tools": null,
          "add_generation_prompt": true, "bos_token": "<s>", "items": [1, 2.5, "x", null], "d": {"a": {"b": 1}},
          "users": [{"name": "Al", "age": 3}, {"name": "Bo"}]})");
  try {
    const jinja::Template parsed(source, "fuzz");
    static_cast<void>(
        parsed.render(variables, {.max_steps = 20'000, .max_memory = 1 << 22, .max_output = 1 << 16, .now = 0}));
    return true;
  } catch (const Error& error) {
    return refused(error);
  }
}

// A line with the JSON of messages, and behind it a template: the spans of the answers lie in the text, in order.
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
      if (begin < before || end < begin || end > spans.text.size()) __builtin_trap();
      before = end;
    }
    return true;
  } catch (const Error& error) {
    return refused(error);
  }
}

}  // namespace ingot::text::fuzz
