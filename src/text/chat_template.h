// Chat templates: render a conversation as the text format that a model was trained on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/jinja.h"

namespace ingot::text {

class Tokenizer;

struct ChatOptions {
  bool add_generation_prompt = false;  // append the header of an assistant turn
  std::string bos_token;               // as text; "" when the model has none
  std::string eos_token;
  // A JSON object of additional template variables, e.g. {"date_string": "..."}, or "". Their values are content.
  std::string extra_variables;
  jinja::RenderOptions render;  // limits, and the time of strftime_now
};

// A rendered conversation. The byte ranges that are content (from messages, tools and extra_variables) are tracked by
// the renderer, not searched in the text; encode_chat() uses them.
struct ChatText {
  std::string text;
  ByteRanges content;
};

// A rendered conversation with the byte ranges that the assistant wrote, in order and disjoint. A range covers the
// content and the end-of-turn token after it, without white space after that token.
struct ChatSpans : ChatText {
  ByteRanges assistant;
};

// The tokens of a chat: special tokens come only from the template, never from content that looks like one.
std::vector<int32_t> encode_chat(const Tokenizer& tokenizer, const ChatText& chat);

// Immutable and thread-safe after construction.
class ChatTemplate {
 public:
  // `source` is the Jinja text; `name` is for errors. Errors: as jinja::Template.
  ChatTemplate(std::string_view source, std::string_view name) : template_(source, name), name_(name) {}

  // `messages` is a list of {"role", "content", ...}, `tools` a list of tool descriptions or null. Errors: usage when
  // `messages` is not such a list or the template raises an exception; otherwise as jinja::Template::render.
  ChatText render(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools,
                  const ChatOptions& options) const;

  // The same from JSON texts; an empty `tools` means null. Errors: also corrupt for invalid JSON.
  ChatText render_json(std::string_view messages, std::string_view tools, const ChatOptions& options) const;

  // For training on assistant turns only. If the template has {% generation %} blocks, they are the spans. Otherwise
  // the conversation is rendered up to each assistant message, without it (with generation prompt) and with it; the
  // difference is the span. add_generation_prompt applies to the final rendering. Errors: unsupported when a rendering
  // is not a prefix of the next one (a template that rewrites earlier turns).
  ChatSpans render_spans(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools,
                         const ChatOptions& options) const;

 private:
  jinja::Rendered run(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools,
                      const ChatOptions& options) const;

  jinja::Template template_;
  std::string name_;
};

}  // namespace ingot::text
