#include "server/requests.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "infer/host_adapter.h"
#include "server/fields.h"
#include "server/messages.h"
#include "server/text_fields.h"
#include "server/tool_fields.h"

namespace ingot::server {

namespace {

constexpr int64_t max_choices = 128;
constexpr size_t max_prompts = 2048;
constexpr size_t max_messages = 16384;

Ids ids_at(const Json& list, const std::string& path) {
  if (list.empty()) throw bad_field(path, "invalid_value", fmt::format("'{}' is empty.", path));
  Ids ids;
  ids.reserve(list.size());
  for (const Json& id : list) ids.push_back(token_id_at(id, path));
  return ids;
}

void read_common(Fields& fields, TextRequest& request) {
  read_text_request(fields, request);
  request.n = fields.integer("n", 1, max_choices).value_or(1);
  if (const Json* options = fields.object("stream_options")) {
    if (!request.stream) {
      throw bad_field("stream_options", "invalid_value", "'stream_options' needs 'stream': true.");
    }
    Fields inner(*options, "stream_options");
    request.include_usage = inner.boolean("include_usage").value_or(false);
    inner.ignore({"include_obfuscation"});
    inner.finish();
  }
  fields.ignore({"metadata", "store"});
}

void read_tool_choice(Fields& fields, ChatRequest& request) {
  request.tool_choice = request.tools.empty() ? ToolChoice::none : ToolChoice::automatic;
  const Json* choice = fields.any("tool_choice");
  if (!choice) return;
  if (request.tools.empty() && !(choice->is_string() && *choice == "none")) {
    throw bad_field("tool_choice", "invalid_value", "'tool_choice' needs 'tools'.");
  }
  if (choice->is_string()) {
    request.tool_choice = read_choice_mode(fields);
    return;
  }
  Fields inner(*fields.object("tool_choice"), "tool_choice");
  inner.needed_text("type");
  inner.word("type", {"function"});
  Fields named(inner.needed_object("function"), "tool_choice.function");
  const std::string name = named.needed_text("name");
  named.finish();
  inner.finish();
  allow_tools(request, {name}, "tool_choice.function.name");
  request.tool_choice = ToolChoice::required;
}

void read_tools(Fields& fields, ChatRequest& request) {
  if (const Json* tools = fields.array("tools", 1, max_tools)) {
    for (size_t i = 0; i < tools->size(); ++i) {
      Fields tool((*tools)[i], fmt::format("tools[{}]", i));
      tool.needed_text("type");
      tool.word("type", {"function"});
      Fields function(tool.needed_object("function"), tool.path_of("function"));
      request.tool_list.push_back(read_function(function));
      function.finish();
      tool.finish();
    }
    request.tools = tools->dump();
  }
  read_tool_choice(fields, request);
}

// A string, an array of strings, of ids, or of arrays of ids.
std::vector<Prompt> prompts_of(Fields& fields, const char* name) {
  const Json* value = fields.any(name);
  if (!value) throw fields.missing(name);
  if (value->is_string()) return {value->get<std::string>()};
  if (!value->is_array() || value->empty()) {
    throw bad_field(name, "invalid_type",
                    fmt::format("'{}' must be a string, or an array of strings, of token ids or of arrays of these, "
                                "and not empty.",
                                name));
  }
  if (value->front().is_number()) return {ids_at(*value, name)};
  if (value->size() > max_prompts) {
    throw bad_field(name, "invalid_value",
                    fmt::format("'{}' has {} items; at most {}.", name, value->size(), max_prompts));
  }
  std::vector<Prompt> prompts;
  for (size_t i = 0; i < value->size(); ++i) {
    const std::string path = fmt::format("{}[{}]", name, i);
    const Json& item = (*value)[i];
    if (item.is_array()) {
      prompts.emplace_back(ids_at(item, path));
    } else {
      prompts.emplace_back(text_at(item, path));
    }
  }
  return prompts;
}

void read(Fields& fields, ChatRequest& request) {
  read_common(fields, request);
  request.messages = template_messages(fields.needed_array("messages", 1, max_messages)).dump();
  const std::optional<int64_t> older = fields.integer("max_tokens", 1, max_output_tokens);
  const std::optional<int64_t> newer = fields.integer("max_completion_tokens", 1, max_output_tokens);
  if (older && newer && *older != *newer) {
    throw bad_field("max_tokens", "invalid_value", "'max_tokens' and 'max_completion_tokens' differ; give one.");
  }
  request.max_tokens = newer ? newer : older;
  request.logprobs = fields.boolean("logprobs").value_or(false);
  const std::optional<int64_t> top = fields.integer("top_logprobs", 0, 20);
  if (top && *top > 0 && !request.logprobs) {
    throw bad_field("top_logprobs", "invalid_value", "'top_logprobs' needs 'logprobs': true.");
  }
  request.sampling.top_logprobs = top.value_or(0);
  read_tools(fields, request);
  request.template_variables = template_variables_of(fields);
  request.parallel_tool_calls = fields.boolean("parallel_tool_calls").value_or(true);
  fields.ignore({"reasoning_effort", "verbosity"});
  if (const Json* modalities = fields.any("modalities"); modalities && *modalities != Json::array({"text"})) {
    throw bad_field("modalities", "unsupported_value", "'modalities' may only be [\"text\"].");
  }
}

void read(Fields& fields, CompletionRequest& request) {
  read_common(fields, request);
  request.prompts = prompts_of(fields, "prompt");
  request.max_tokens = fields.integer("max_tokens", 0, max_output_tokens).value_or(16);
  request.echo = fields.boolean("echo").value_or(false);
  if (request.max_tokens == 0 && !request.echo) {
    throw bad_field("max_tokens", "invalid_value", "'max_tokens' of 0 needs 'echo': true.");
  }
  if (const std::optional<int64_t> logprobs = fields.integer("logprobs", 0, 5)) {
    request.logprobs = true;
    request.sampling.top_logprobs = *logprobs;
  }
  request.best_of = fields.integer("best_of", 0, 20).value_or(request.n);
  if (request.best_of == 0) request.best_of = request.n;
  if (request.best_of < request.n) {
    throw bad_field("best_of", "invalid_value", "'best_of' must not be smaller than 'n'.");
  }
  if (request.best_of > request.n && request.stream) {
    throw bad_field("best_of", "invalid_value", "'best_of' above 'n' cannot be streamed.");
  }
  if (static_cast<int64_t>(request.prompts.size()) * request.best_of > static_cast<int64_t>(max_prompts)) {
    throw bad_field("prompt", "invalid_value",
                    fmt::format("{} prompts with {} outputs each exceed the maximum of {} outputs per request.",
                                request.prompts.size(), request.best_of, max_prompts));
  }
  if (const std::optional<std::string> suffix = fields.text("suffix"); suffix && !suffix->empty()) {
    throw bad_field("suffix", "unsupported_parameter", "'suffix' is not supported: models only continue a text.");
  }
}

void read(Fields& fields, EmbeddingsRequest& request) {
  request.model = fields.needed_text("model");
  request.inputs = prompts_of(fields, "input");
  request.base64 = fields.word("encoding_format", {"float", "base64"}).value_or("float") == "base64";
  request.dimensions = fields.integer("dimensions", 1, int64_t{1} << 20);
  fields.ignore({"user"});
  for (const Prompt& input : request.inputs) {
    const std::string* words = std::get_if<std::string>(&input);
    if (words && words->empty()) throw bad_field("input", "invalid_value", "An input is empty.");
  }
}

void read(Fields& fields, TokenizeRequest& request) {
  request.model = fields.text("model");
  request.prompt = fields.text("prompt");
  if (const Json* messages = fields.array("messages", 1, max_messages)) {
    if (request.prompt) throw bad_field("messages", "invalid_value", "Give 'prompt' or 'messages', not both.");
    request.messages = template_messages(*messages).dump();
    request.template_variables = template_variables_of(fields);
  } else if (!request.prompt) {
    throw fields.missing("prompt");
  }
  request.add_special_tokens = fields.boolean("add_special_tokens").value_or(true);
}

void read(Fields& fields, DetokenizeRequest& request) {
  request.model = fields.text("model");
  for (const Json& id : fields.needed_array("tokens", 0, max_json_values))
    request.tokens.push_back(token_id_at(id, "tokens"));
}

void read(Fields& fields, AdapterRequest& request) {
  request.name = fields.needed_text("name");
  if (!infer::is_adapter_name(request.name)) {
    throw bad_field("name", "invalid_value",
                    "An adapter's name must have 1 to 128 letters, digits, '_', '-' and '.', and not start with a dot; "
                    "it is a subfolder of the server's --adapters.");
  }
}

template <class Request>
Request parse(std::string_view body) {
  Request request;
  read_body(body, [&](Fields& fields) { read(fields, request); });
  return request;
}

}  // namespace

ChatRequest parse_chat(std::string_view body) { return parse<ChatRequest>(body); }
CompletionRequest parse_completion(std::string_view body) { return parse<CompletionRequest>(body); }
EmbeddingsRequest parse_embeddings(std::string_view body) { return parse<EmbeddingsRequest>(body); }
TokenizeRequest parse_tokenize(std::string_view body) { return parse<TokenizeRequest>(body); }
DetokenizeRequest parse_detokenize(std::string_view body) { return parse<DetokenizeRequest>(body); }
AdapterRequest parse_adapter(std::string_view body) { return parse<AdapterRequest>(body); }

}  // namespace ingot::server
