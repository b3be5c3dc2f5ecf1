// Chat templates: a conversation to the text that a model was tuned on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja.h"

namespace ingot::text {

class Tokenizer;

struct ChatOptions {
  bool add_generation_prompt = false;  // end with the beginning of an assistant turn
  std::string bos_token;               // as text; "" when the model has none
  std::string eos_token;
  // The text of a JSON object with further variables, which are content, e.g. {"date_string": "..."}; or "".
  std::string extra_variables;
  jinja::RenderOptions render;  // limits, and the clock of strftime_now
};

// A rendered conversation. Which of its bytes are content (of messages, tools and further variables) comes from the
// rendering itself, not from a search in the text; encode_chat() takes them as they are.
struct ChatText {
  std::string text;
  ByteRanges content;
};

// With the bytes that an assistant wrote: ranges in order, that do not overlap. A range has the content and the
// end-of-turn token behind it, without white space after that token.
struct ChatSpans : ChatText {
  ByteRanges assistant;
};

// Its tokens: special tokens are what the template wrote, never what looks like one inside of content.
std::vector<int32_t> encode_chat(const Tokenizer& tokenizer, const ChatText& chat);

// Immutable and thread-safe after construction.
class ChatTemplate {
 public:
  // `source` is the Jinja text; `name` is for errors. Errors: as jinja::Template.
  ChatTemplate(std::string_view source, std::string_view name) : template_(source, name), name_(name) {}

  // `messages` is a list of {"role", "content", ...}, `tools` a list of tool descriptions or null.
  // Errors: usage when messages are no such list or the template refuses them; otherwise as jinja::Template::render.
  ChatText render(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools,
                  const ChatOptions& options) const;

  // The same from JSON texts; an empty `tools` is null. Errors: also corrupt for what is not JSON.
  ChatText render_json(std::string_view messages, std::string_view tools, const ChatOptions& options) const;

  // For training on the answers only. Where the template has {% generation %} blocks, they are the spans. Otherwise the
  // conversation is rendered up to each assistant message without it (with generation prompt) and with it, and the
  // difference is the span; add_generation_prompt applies to the whole.
  // Errors: unsupported when a rendering is not the beginning of the next one (a template that rewrites earlier turns).
  ChatSpans render_spans(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools,
                         const ChatOptions& options) const;

 private:
  jinja::Rendered run(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools,
                      const ChatOptions& options) const;

  jinja::Template template_;
  std::string name_;
};

}  // namespace ingot::text
