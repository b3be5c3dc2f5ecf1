#include "text/chat_template.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "text/tokenizer.h"
#include "text/unicode.h"

namespace ingot::text {
namespace {

using nlohmann::ordered_json;

ordered_json parse_json(std::string_view text, const char* what) {
  try {
    return parse_lenient_ordered_json(text);
  } catch (const Error& error) {
    throw_error(error.kind(), "the text of the {} {}", what, error.message());
  }
}

void check_messages(const ordered_json& messages) {
  if (!messages.is_array()) throw_error(ErrorKind::usage, "messages are not a list");
  for (size_t i = 0; i < messages.size(); ++i) {
    const auto role = messages[i].find("role");
    if (!messages[i].is_object() || role == messages[i].end() || !role->is_string()) {
      throw_error(ErrorKind::usage, "message {} is not an object with a \"role\"", i);
    }
  }
}

// As in transformers: the reasoning of a message has one of three names; it is passed to templates by the first two.
ordered_json with_reasoning(const ordered_json& messages) {
  ordered_json all = ordered_json::array();
  for (const ordered_json& message : messages) {
    const ordered_json* reasoning = nullptr;
    for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
      const auto found = message.find(name);
      if (reasoning == nullptr && found != message.end() && !found->is_null()) reasoning = &*found;
    }
    if (reasoning == nullptr) {
      all.push_back(message);
      continue;
    }
    ordered_json named = ordered_json::object();
    if (!message.contains("thinking")) named["thinking"] = *reasoning;
    for (const auto& [key, value] : message.items()) named[key] = value;
    named["reasoning_content"] = *reasoning;
    all.push_back(std::move(named));
  }
  return all;
}

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// The end of the turn in [begin, text.size()), without white space after its end-of-turn token. White space at the end
// of the content is kept.
size_t end_of_turn(const jinja::Rendered& rendered, size_t begin) {
  const size_t keep = rendered.content.empty() ? begin : std::max(begin, rendered.content.back().second);
  size_t end = rendered.text.size();
  while (end > keep && is_space(rendered.text[end - 1])) --end;
  return end;
}

}  // namespace

std::vector<int32_t> encode_chat(const Tokenizer& tokenizer, const ChatText& chat) {
  return tokenizer.encode(chat.text, {.add_special_tokens = false, .content = chat.content});
}

jinja::Rendered ChatTemplate::run(const ordered_json& messages, const ordered_json& tools,
                                  const ChatOptions& options) const {
  check_messages(messages);
  if (!tools.is_null() && !tools.is_array()) throw_error(ErrorKind::usage, "tools are not a list");
  ordered_json variables = {{"messages", with_reasoning(messages)}, {"tools", tools}, {"documents", nullptr}};
  ordered_json author_variables = {{"add_generation_prompt", options.add_generation_prompt},
                                   {"bos_token", options.bos_token},
                                   {"eos_token", options.eos_token}};
  if (!options.extra_variables.empty()) {
    const ordered_json extra = parse_json(options.extra_variables, "template variables");
    if (!extra.is_object()) throw_error(ErrorKind::usage, "template variables are not an object");
    variables.update(extra);
    for (const auto& [name, value] : extra.items()) author_variables.erase(name);
  }
  return template_.render(variables, author_variables, options.render);
}

ChatText ChatTemplate::render(const ordered_json& messages, const ordered_json& tools,
                              const ChatOptions& options) const {
  jinja::Rendered rendered = run(messages, tools, options);
  return {std::move(rendered.text), std::move(rendered.content)};
}

ChatText ChatTemplate::render_json(std::string_view messages, std::string_view tools,
                                   const ChatOptions& options) const {
  return render(parse_json(messages, "messages"), tools.empty() ? ordered_json(nullptr) : parse_json(tools, "tools"),
                options);
}

ChatSpans ChatTemplate::render_spans(const ordered_json& messages, const ordered_json& tools,
                                     const ChatOptions& options) const {
  jinja::Rendered whole = run(messages, tools, options);
  ChatSpans spans{{std::move(whole.text), std::move(whole.content)}, {}};
  if (template_.has_generation_blocks()) {
    spans.assistant = std::move(whole.generation);
    return spans;
  }
  ordered_json before = ordered_json::array();
  ChatOptions with_prompt = options, without_prompt = options;
  with_prompt.add_generation_prompt = true;
  without_prompt.add_generation_prompt = false;
  for (size_t i = 0; i < messages.size(); ++i) {
    if (messages[i]["role"] != "assistant") {
      before.push_back(messages[i]);
      continue;
    }
    const std::string prompt = run(before, tools, with_prompt).text;
    before.push_back(messages[i]);
    const jinja::Rendered turn = run(before, tools, without_prompt);
    if (!turn.text.starts_with(prompt) || !spans.text.starts_with(turn.text)) {
      throw_hint(ErrorKind::unsupported,
                 "train on conversations with one answer each, or mark answers with generation blocks in the template",
                 "{}: the text rendered up to message {} does not begin with the text rendered before it, so the "
                 "assistant's text cannot be located",
                 name_, i);
    }
    spans.assistant.emplace_back(prompt.size(), end_of_turn(turn, prompt.size()));
  }
  return spans;
}

}  // namespace ingot::text
