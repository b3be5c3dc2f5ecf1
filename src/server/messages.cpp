#include "server/messages.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "server/fields.h"

namespace ingot::server {

namespace {

// A content's text: it is a string, or a list of text parts.
std::string content_text(const Json& content, const std::string& path) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) {
    throw bad_field(path, "invalid_type", fmt::format("'{}' must be a string or an array of parts.", path));
  }
  std::string text;
  for (size_t i = 0; i < content.size(); ++i) {
    Fields part(content[i], fmt::format("{}[{}]", path, i));
    const std::string type = part.needed_text("type");
    if (type != "text" && type != "refusal") {
      throw bad_field(part.path_of("type"), "unsupported_value",
                      fmt::format("Parts of type '{}' are not supported: this server takes text.", type.substr(0, 64)));
    }
    if (i > 0) text += '\n';
    text += part.needed_text(type == "text" ? "text" : "refusal");
    part.finish();
  }
  return text;
}

Json tool_call(const Json& call, const std::string& path) {
  Fields fields(call, path);
  Json out = {{"id", fields.needed_text("id")}, {"type", "function"}};
  fields.word("type", {"function"});
  fields.ignore({"index"});
  Fields inner(fields.needed_object("function"), fields.path_of("function"));
  const std::string name = inner.needed_text("name");
  const std::string arguments = inner.needed_text("arguments");
  inner.finish();
  fields.finish();
  Json parsed;
  try {
    parsed = arguments.empty() ? Json::object() : parse_json(arguments);
  } catch (const Error& error) {
    throw bad_field(inner.path_of("arguments"), "invalid_value",
                    fmt::format("'{}' must be JSON in a string: {}.", inner.path_of("arguments"), error.message()));
  }
  out["function"] = {{"name", name}, {"arguments", std::move(parsed)}};
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

}  // namespace

Json template_messages(const Json& messages) {
  Json out = Json::array();
  for (size_t i = 0; i < messages.size(); ++i) {
    out.push_back(message_of(messages[i], fmt::format("messages[{}]", i)));
  }
  return out;
}

}  // namespace ingot::server
