#include "server/reply_json.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "base/json.h"

namespace ingot::server {

using Json = nlohmann::ordered_json;

std::string line_of(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

std::string event(const std::string& json) { return "data: " + json + "\n\n"; }

std::string Reply::failure(const std::string& error) { return event(error); }

Json frame_of(const ReplyInfo& info, const char* object) {
  return {{"id", info.id},
          {"object", object},
          {"created", info.created},
          {"model", info.model},
          {"system_fingerprint", info.fingerprint}};
}

std::string last_events(Json frame, const Usage* usage) {
  std::string events;
  if (usage) {
    frame["choices"] = Json::array();
    frame["usage"] = usage_json(*usage);
    events = event(line_of(frame));
  }
  return events + "data: [DONE]\n\n";
}

std::string complete_reply(const Json& frame, const std::vector<std::string>& choices, const Usage& usage) {
  std::string text = line_of(frame);
  text.pop_back();  // the closing brace
  return fmt::format(R"({},"choices":[{}],"usage":{}}})", text, fmt::join(choices, ","), line_of(usage_json(usage)));
}

Json usage_json(const Usage& usage) {
  return {{"prompt_tokens", usage.prompt},
          {"completion_tokens", usage.completion},
          {"total_tokens", usage.prompt + usage.completion},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached}}},
          {"completion_tokens_details", {{"reasoning_tokens", 0}}}};
}

const char* finish_reason(infer::FinishReason finish) {
  return finish == infer::FinishReason::stop ? "stop" : "length";
}

Json logprob_json(const text::Tokenizer& tokenizer, const TokenLogprobEntry& entry) {
  const auto describe = [&](int32_t id, float logprob) {
    Json bytes = Json::array();
    for (const char c : tokenizer.token_bytes(id)) bytes.push_back(static_cast<unsigned char>(c));
    return Json{{"token", token_string(tokenizer, id)}, {"logprob", logprob}, {"bytes", std::move(bytes)}};
  };
  Json token = describe(entry.choice.id, entry.choice.logprob);
  token["top_logprobs"] = Json::array();
  for (const infer::TokenLogprob& likely : entry.choice.top) {
    token["top_logprobs"].push_back(describe(likely.id, likely.logprob));
  }
  return token;
}

std::string logprobs_text(const text::Tokenizer& tokenizer, const std::vector<TokenLogprobEntry>& entries) {
  std::string text = "[";
  for (const TokenLogprobEntry& entry : entries) {
    if (&entry != &entries.front()) text += ',';
    text += line_of(logprob_json(tokenizer, entry));
  }
  return text + "]";
}

ToolReader tool_reader(const ChatRequest& request, ToolForm form) {
  std::vector<std::string> names;
  for (const Tool& tool : request.tool_list) names.push_back(tool.name);
  return {form, std::move(names), request.parallel_tool_calls ? SIZE_MAX : 1};
}

std::string token_string(const text::Tokenizer& tokenizer, int32_t id) {
  // As in JSON: the replacement character stands for invalid UTF-8.
  return parse_lenient_ordered_json(line_of(tokenizer.token_bytes(id))).get<std::string>();
}

}  // namespace ingot::server
