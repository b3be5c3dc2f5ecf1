#include "server/messages.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "server/fields.h"

namespace ingot::server {

namespace {

using Words = std::vector<std::string>;

// The text of a content, which is a string, or a list of text parts of one of these types and of refusals.
std::string content_text(const Json& content, const std::string& path, const Words& types = {"text"}) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) {
    throw bad_field(path, "invalid_type", fmt::format("'{}' must be a string or an array of parts.", path));
  }
  std::string text;
  for (size_t i = 0; i < content.size(); ++i) {
    Fields part(content[i], fmt::format("{}[{}]", path, i));
    const std::string type = part.needed_text("type");
    const bool is_refusal = type == "refusal";
    if (!is_refusal && std::ranges::find(types, type) == types.end()) {
      throw bad_field(part.path_of("type"), "unsupported_value",
                      fmt::format("Parts of type '{}' are not supported, only text.", type.substr(0, 64)));
    }
    if (i > 0) text += '\n';
    text += part.needed_text(is_refusal ? "refusal" : "text");
    if (type == "output_text") part.ignore({"annotations", "logprobs"});  // of an answer that the client sends back
    part.finish();
  }
  return text;
}

// A call's name and arguments, which the request has as JSON in a string.
Json called_function(Fields& fields) {
  const std::string name = fields.needed_text("name");
  const std::string arguments = fields.needed_text("arguments");
  Json parsed;
  try {
    parsed = arguments.empty() ? Json::object() : parse_json(arguments);
  } catch (const Error& error) {
    throw bad_field(fields.path_of("arguments"), "invalid_value",
                    fmt::format("'{}' must be JSON in a string: {}.", fields.path_of("arguments"), error.message()));
  }
  return {{"name", name}, {"arguments", std::move(parsed)}};
}

Json tool_call(const Json& call, const std::string& path) {
  Fields fields(call, path);
  Json out = {{"id", fields.needed_text("id")}, {"type", "function"}};
  fields.word("type", {"function"});
  fields.ignore({"index"});
  Fields inner(fields.needed_object("function"), fields.path_of("function"));
  out["function"] = called_function(inner);
  inner.finish();
  fields.finish();
  return out;
}

Json message_of(const Json& message, const std::string& path) {
  Fields fields(message, path);
  const std::string role = fields.needed_text("role");
  fields.word("role", {"system", "developer", "user", "assistant", "tool"});
  Json out = {{"role", role == "developer" ? "system" : role}};
  const Json* calls = role == "assistant" ? fields.array("tool_calls", 1, 128) : nullptr;
  const Json* content = fields.any("content");
  if (!content && !calls && !(role == "assistant" && fields.has("refusal"))) throw fields.missing("content");
  out["content"] = content ? content_text(*content, fields.path_of("content")) : fields.text("refusal").value_or("");
  if (const std::optional<std::string> name = fields.text("name")) out["name"] = *name;
  if (role == "tool") out["tool_call_id"] = fields.needed_text("tool_call_id");
  if (role == "assistant") fields.ignore({"refusal", "annotations", "audio", "reasoning_content"});
  if (calls) {
    Json list = Json::array();
    for (size_t i = 0; i < calls->size(); ++i) {
      list.push_back(tool_call((*calls)[i], fmt::format("{}[{}]", fields.path_of("tool_calls"), i)));
    }
    out["tool_calls"] = std::move(list);
  }
  fields.finish();
  return out;
}

// Appends the message of an item of the Responses API.
void add_item(Json& messages, const Json& item, const std::string& path) {
  Fields fields(item, path);
  const std::string type = fields.text("type").value_or("message");
  fields.ignore({"id", "status"});
  if (type == "message") {
    const std::string role = fields.needed_text("role");
    fields.word("role", {"system", "developer", "user", "assistant"});
    const Json* content = fields.any("content");
    if (!content) throw fields.missing("content");
    fields.ignore({"phase"});
    const Words types = role == "assistant" ? Words{"output_text", "input_text"} : Words{"input_text"};
    messages.push_back({{"role", role == "developer" ? "system" : role},
                        {"content", content_text(*content, fields.path_of("content"), types)}});
  } else if (type == "function_call") {
    const Json call = {
        {"id", fields.needed_text("call_id")}, {"type", "function"}, {"function", called_function(fields)}};
    // Calls are in one message, together with what the assistant said before them.
    if (messages.empty() || messages.back()["role"] != "assistant") {
      messages.push_back({{"role", "assistant"}, {"content", ""}});
    }
    messages.back()["tool_calls"].push_back(call);
  } else if (type == "function_call_output") {
    const std::string id = fields.needed_text("call_id");
    const Json* output = fields.any("output");
    if (!output) throw fields.missing("output");
    messages.push_back({{"role", "tool"},
                        {"content", content_text(*output, fields.path_of("output"), {"input_text"})},
                        {"tool_call_id", id}});
  } else {
    throw bad_field(
        fields.path_of("type"), "unsupported_value",
        fmt::format("Items of type '{}' are not supported, only messages, function calls and their outputs.",
                    type.substr(0, 64)));
  }
  fields.finish();
}

}  // namespace

Json template_items(const Json& items, const std::string& instructions) {
  Json messages = Json::array();
  if (!instructions.empty()) messages.push_back({{"role", "system"}, {"content", instructions}});
  for (size_t i = 0; i < items.size(); ++i) add_item(messages, items[i], fmt::format("input[{}]", i));
  return messages;
}

Json template_messages(const Json& messages) {
  Json out = Json::array();
  for (size_t i = 0; i < messages.size(); ++i) {
    out.push_back(message_of(messages[i], fmt::format("messages[{}]", i)));
  }
  return out;
}

}  // namespace ingot::server
