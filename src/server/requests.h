// The routes' request bodies as typed values: each field with its range (OpenAI's API reference; docs/serving.md lists
// what is supported).
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

// Common to chat and plain completions.
struct TextRequest {
  std::string model;
  infer::SamplingParams sampling;  // without its seed, which depends on the output too
  std::optional<int64_t> seed;
  int64_t n = 1;
  std::vector<std::string> stop;
  std::optional<int64_t> max_tokens;
  int64_t priority = 0;                                           // higher first
  std::optional<std::chrono::steady_clock::time_point> deadline;  // `deadline_ms` after the request was read
  bool stream = false;
  bool include_usage = false;
  bool logprobs = false;    // return log-probabilities, with the `sampling.top_logprobs` most likely tokens
  Ids stop_ids;             // the output also ends before the first of these
  bool ignore_eos = false;  // the model's EOS tokens do not end the output
  ConstraintField format;
};

struct Tool {
  std::string name;
  std::string parameters;  // JSON Schema as text; that of an object without properties if none was given
  bool strict = false;     // refuse keywords that the schema's draft does not know
};

enum class ToolChoice { none, automatic, required };

struct ChatRequest : TextRequest {
  std::string messages;         // JSON for chat templates: contents are strings, arguments of tool calls are objects
  std::string tools;            // JSON as received; "" for none
  std::vector<Tool> tool_list;  // those that `tool_choice` allows to be called
  ToolChoice tool_choice = ToolChoice::automatic;
  bool parallel_tool_calls = true;        // false: at most one call per output
  std::string template_variables;         // JSON object: further variables for the chat template; "" for none
  std::string prompt_param = "messages";  // the field that errors about the prompt name
};

struct CompletionRequest : TextRequest {
  std::vector<Prompt> prompts;
  int64_t best_of = 1;
  bool echo = false;
};

struct ResponsesRequest : ChatRequest {
  std::string request_echo;  // JSON object: members of the request that the answer repeats
};

struct EmbeddingsRequest {
  std::string model;
  std::vector<Prompt> inputs;
  bool base64 = false;
  std::optional<int64_t> dimensions;
};

struct TokenizeRequest {
  std::optional<std::string> model;
  std::optional<std::string> prompt;  // either this or `messages`
  std::string messages;
  std::string template_variables;  // as in ChatRequest, for `messages`
  bool add_special_tokens = true;
};

struct DetokenizeRequest {
  std::optional<std::string> model;
  Ids tokens;
};

struct AdapterRequest {
  std::string name;
};

// Each parses a request body. Errors: ApiError.
ChatRequest parse_chat(std::string_view body);
CompletionRequest parse_completion(std::string_view body);
ResponsesRequest parse_responses(std::string_view body);
EmbeddingsRequest parse_embeddings(std::string_view body);
TokenizeRequest parse_tokenize(std::string_view body);
DetokenizeRequest parse_detokenize(std::string_view body);
AdapterRequest parse_adapter(std::string_view body);

}  // namespace ingot::server
