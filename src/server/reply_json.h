// JSON that the generating routes share.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "server/reply.h"

namespace ingot::server {

// One server-sent event.
std::string event(const std::string& json);
// On one line; bytes that are not UTF-8 become U+FFFD.
std::string line_of(const nlohmann::ordered_json& value);
// The members that every answer and chunk begins with.
nlohmann::ordered_json frame_of(const ReplyInfo& info, const char* object);
// The last events of a stream of such frames; without usage if it is null.
std::string last_events(nlohmann::ordered_json frame, const Usage* usage);
// A complete, not streamed reply from a frame and choices. The choices are JSON text: long ones as JSON values would
// take too much memory.
std::string complete_reply(const nlohmann::ordered_json& frame, const std::vector<std::string>& choices,
                           const Usage& usage);
nlohmann::ordered_json usage_json(const Usage& usage);
// Reads the tool calls of one output of the request.
ToolReader tool_reader(const ChatRequest& request, ToolForm form);
// The finish_reason: "stop" or "length"; a deadline counts as length.
const char* finish_reason(infer::FinishReason finish);
// A token's log-probability in chat and responses: {"token", "logprob", "bytes", "top_logprobs"}.
nlohmann::ordered_json logprob_json(const text::Tokenizer& tokenizer, const TokenLogprobEntry& entry);
// logprob_json of all tokens, as the text of one JSON array: a JSON value would take many times the memory.
std::string logprobs_text(const text::Tokenizer& tokenizer, const std::vector<TokenLogprobEntry>& entries);
// A token as text: U+FFFD for bytes that are not a whole character.
std::string token_string(const text::Tokenizer& tokenizer, int32_t id);

}  // namespace ingot::server
