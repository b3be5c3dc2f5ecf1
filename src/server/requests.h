// What the routes take, as typed values: each field with its range (specs/openai_api.md, sections 1 to 3).
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "infer/sampler.h"
#include "server/constraint.h"

namespace ingot::server {

using Ids = std::vector<int32_t>;
using Prompt = std::variant<std::string, Ids>;

// What chat and plain completions have in common.
struct TextRequest {
  std::string model;
  infer::Sampling sampling;  // but for its seed, which depends on the output too
  std::optional<int64_t> seed;
  int64_t n = 1;
  std::vector<std::string> stop;
  std::optional<int64_t> max_tokens;
  int64_t priority = 0;                                           // higher first
  std::optional<std::chrono::steady_clock::time_point> deadline;  // `deadline_ms` after the request was read
  bool stream = false;
  bool include_usage = false;
  bool logprobs = false;    // and so many as `sampling` says of the likeliest
  Ids stop_ids;             // the output ends before any of these, too
  bool ignore_eos = false;  // the model's own end tokens do not end it
  ConstraintField format;
};

struct Tool {
  std::string name;
  std::string parameters;  // JSON Schema as text; an object without members when none was given
  bool strict = false;     // keywords that the schema's draft does not know are refused
};

enum class ToolChoice { none, automatic, required };

struct ChatRequest : TextRequest {
  std::string messages;  // JSON, as chat templates take it: contents are strings, arguments of tool calls objects
  std::string tools;     // JSON, as it came; "" without any
  std::vector<Tool> tool_list;  // that may be called: the one that `tool_choice` names, or all
  ToolChoice tool_choice = ToolChoice::automatic;
  bool parallel_tool_calls = true;        // false: an output has one call at most
  std::string template_variables;         // JSON, of an object: further ones for the chat template; "" without any
  std::string prompt_param = "messages";  // the field that errors of the prompt name
};

struct CompletionRequest : TextRequest {
  std::vector<Prompt> prompts;
  int64_t best_of = 1;
  bool echo = false;
};

struct ResponsesRequest : ChatRequest {
  std::string request_echo;  // JSON, of an object: what the answer says of the request
};

struct EmbeddingsRequest {
  std::string model;
  std::vector<Prompt> inputs;
  bool base64 = false;
  std::optional<int64_t> dimensions;
};

struct TokenizeRequest {
  std::optional<std::string> model;
  std::optional<std::string> prompt;  // one of the two
  std::string messages;
  std::string template_variables;  // ChatRequest's, for `messages`
  bool add_special_tokens = true;
};

struct DetokenizeRequest {
  std::optional<std::string> model;
  Ids tokens;
};

struct AdapterRequest {
  std::string name;
};

// Each reads a body. Errors: ApiError.
ChatRequest parse_chat(std::string_view body);
CompletionRequest parse_completion(std::string_view body);
ResponsesRequest parse_responses(std::string_view body);
EmbeddingsRequest parse_embeddings(std::string_view body);
TokenizeRequest parse_tokenize(std::string_view body);
DetokenizeRequest parse_detokenize(std::string_view body);
AdapterRequest parse_adapter(std::string_view body);

}  // namespace ingot::server
