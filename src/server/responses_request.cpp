// Parses requests to /v1/responses. They are stateless, as nothing is stored.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "server/messages.h"
#include "server/text_fields.h"
#include "server/tool_fields.h"

namespace ingot::server {

namespace {

constexpr size_t max_items = 16384;
constexpr const char* logprobs_word = "message.output_text.logprobs";

[[noreturn]] void refuse_state(const char* name, const char* instead) {
  throw bad_field(name, "unsupported_parameter",
                  fmt::format("'{}' is not supported: this server stores no responses; {}.", name, instead));
}

void refuse_what_needs_a_store(Fields& fields) {
  constexpr const char* resend = "send the whole conversation as 'input'";
  for (const char* name : {"previous_response_id", "conversation"}) {
    if (fields.has(name)) refuse_state(name, resend);
  }
  if (fields.has("prompt")) refuse_state("prompt", "send the text of the prompt as 'input' or 'instructions'");
  if (fields.boolean("store").value_or(false)) refuse_state("store", "leave it out, or set it to false");
  if (fields.boolean("background").value_or(false)) refuse_state("background", "wait for the answer, or stream it");
  if (fields.has("response_format")) {
    throw bad_field("response_format", "unsupported_parameter",
                    "'response_format' is called 'text.format' in /v1/responses.");
  }
}

void read_input(Fields& fields, ResponsesRequest& request) {
  const std::string instructions = fields.text("instructions").value_or("");
  const Json* input = fields.any("input");
  if (!input) throw fields.missing("input");
  if (input->is_string()) {
    request.messages = template_items(Json::array({{{"role", "user"}, {"content", *input}}}), instructions).dump();
    return;
  }
  if (!input->is_array()) {
    throw bad_field("input", "invalid_type", "'input' must be a string or an array of items.");
  }
  request.messages = template_items(fields.needed_array("input", 1, max_items), instructions).dump();
}

// Reads text.format. Returns the JSON that the answer repeats.
Json read_format(Fields& fields, ResponsesRequest& request) {
  Json request_echo = {{"format", {{"type", "text"}}}};
  const Json* text = fields.object("text");
  if (!text) return request_echo;
  Fields inner(*text, "text");
  inner.ignore({"verbosity"});
  if (const Json* value = inner.object("format")) {
    Fields format(*value, "text.format");
    format.needed_text("type");
    const std::string type = *format.word("type", {"text", "json_object", "json_schema"});
    Constraint constraint;
    if (type == "json_object") constraint.kind = Constraint::Kind::json_object;
    if (type == "json_schema") {
      format.needed_object("schema");
      constraint = json_schema_constraint(format);
    }
    format.finish();
    if (constraint.kind != Constraint::Kind::none) set_constraint(request, {std::move(constraint), "text.format"});
    request_echo["format"] = *value;
  }
  inner.finish();
  return request_echo;
}

// A function tool in the form that chat templates use.
Json chat_tool(const Json& tool, const std::string& path, ResponsesRequest& request) {
  Fields fields(tool, path);
  const std::string type = fields.needed_text("type");
  if (type != "function") {
    throw bad_field(
        fields.path_of("type"), "unsupported_value",
        fmt::format("Tools of type '{}' are not supported: this server takes functions.", type.substr(0, 64)));
  }
  request.tool_list.push_back(read_function(fields));
  Json function = Json::object();
  for (const char* name : {"name", "description", "parameters", "strict"}) {
    if (const Json* value = fields.any(name)) function[name] = *value;
  }
  fields.finish();
  return {{"type", "function"}, {"function", std::move(function)}};
}

void read_tool_choice(Fields& fields, ResponsesRequest& request) {
  request.tool_choice = request.tools.empty() ? ToolChoice::none : ToolChoice::automatic;
  const Json* choice = fields.any("tool_choice");
  if (!choice) return;
  if (choice->is_string()) {
    const ToolChoice word = read_choice_mode(fields);
    if (request.tools.empty() && word == ToolChoice::required) {
      throw bad_field("tool_choice", "invalid_value", "'tool_choice' needs 'tools'.");
    }
    if (!request.tools.empty()) request.tool_choice = word;
    return;
  }
  Fields inner(*fields.object("tool_choice"), "tool_choice");
  inner.needed_text("type");
  if (*inner.word("type", {"function", "allowed_tools"}) == "function") {
    allow_tools(request, {inner.needed_text("name")}, "tool_choice.name");
    request.tool_choice = ToolChoice::required;
  } else {
    inner.needed_text("mode");
    const bool required = *inner.word("mode", {"auto", "required"}) == "required";
    const Json& tools = inner.needed_array("tools", 1, max_tools);
    std::vector<std::string> names;
    for (size_t i = 0; i < tools.size(); ++i) {
      Fields tool(tools[i], fmt::format("tool_choice.tools[{}]", i));
      tool.needed_text("type");
      tool.word("type", {"function"});
      names.push_back(tool.needed_text("name"));
      tool.finish();
    }
    allow_tools(request, names, "tool_choice.tools");
    request.tool_choice = required ? ToolChoice::required : ToolChoice::automatic;
  }
  inner.finish();
}

void read_tools(Fields& fields, ResponsesRequest& request) {
  const Json* tools = fields.array("tools", 0, max_tools);
  Json all = Json::array();
  for (size_t i = 0; tools && i < tools->size(); ++i) {
    all.push_back(chat_tool((*tools)[i], fmt::format("tools[{}]", i), request));
  }
  if (!all.empty()) request.tools = all.dump();
  read_tool_choice(fields, request);
}

void read_logprobs(Fields& fields, ResponsesRequest& request) {
  const Json* include = fields.array("include", 0, 16);
  for (size_t i = 0; include && i < include->size(); ++i) {
    const std::string path = fmt::format("include[{}]", i);
    const std::string word = text_at((*include)[i], path);
    if (word == logprobs_word) request.logprobs = true;
    if (word == logprobs_word || word == "reasoning.encrypted_content") continue;  // which this server does not produce
    throw bad_field(path, "unsupported_value", fmt::format("'{}' is not supported in 'include'.", word.substr(0, 64)));
  }
  const std::optional<int64_t> top = fields.integer("top_logprobs", 0, 20);
  if (top && *top > 0 && !request.logprobs) {
    throw bad_field("top_logprobs", "invalid_value",
                    fmt::format("'top_logprobs' needs 'include': [\"{}\"].", logprobs_word));
  }
  request.sampling.top_logprobs = top.value_or(0);
}

void read(Fields& fields, ResponsesRequest& request) {
  refuse_what_needs_a_store(fields);
  read_text_request(fields, request);
  request.prompt_param = "input";
  read_input(fields, request);
  const Json text = read_format(fields, request);
  read_tools(fields, request);
  read_logprobs(fields, request);
  request.template_variables = template_variables_of(fields);
  request.max_tokens = fields.integer("max_output_tokens", 1, max_output_tokens);
  request.parallel_tool_calls = fields.boolean("parallel_tool_calls").value_or(true);
  if (const Json* options = fields.object("stream_options")) {
    Fields inner(*options, "stream_options");
    inner.ignore({"include_obfuscation"});
    inner.finish();
  }
  if (fields.word("truncation", {"auto", "disabled"}).value_or("disabled") == "auto") {
    throw bad_field("truncation", "unsupported_value",
                    "'truncation' may only be 'disabled': prompts are never truncated.");
  }
  fields.ignore({"reasoning", "max_tool_calls", "prompt_cache_retention"});  // the server has no built-in tools
  const Json* metadata = fields.object("metadata");
  const auto as_given = [&](const char* name, const Json& otherwise) {
    const Json* value = fields.any(name);
    return value ? *value : otherwise;
  };
  const Json request_echo = {{"instructions", as_given("instructions", nullptr)},
                             {"max_output_tokens", as_given("max_output_tokens", nullptr)},
                             {"metadata", metadata ? *metadata : Json::object()},
                             {"parallel_tool_calls", request.parallel_tool_calls},
                             {"temperature", request.sampling.temperature},
                             {"text", text},
                             {"tool_choice", as_given("tool_choice", "auto")},
                             {"tools", as_given("tools", Json::array())},
                             {"top_logprobs", request.sampling.top_logprobs},
                             {"top_p", request.sampling.top_p},
                             {"truncation", "disabled"},
                             {"user", as_given("user", nullptr)}};
  request.request_echo = request_echo.dump();
}

}  // namespace

ResponsesRequest parse_responses(std::string_view body) {
  ResponsesRequest request;
  read_body(body, [&](Fields& fields) { read(fields, request); });
  return request;
}

}  // namespace ingot::server
