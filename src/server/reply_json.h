// Pieces of JSON that chat and plain completions share.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "server/reply.h"

namespace ingot::server {

// One event of a stream.
std::string event(const std::string& json);
// On one line; bytes that are not UTF-8 become U+FFFD.
std::string line_of(const nlohmann::ordered_json& value);
// What every answer and chunk begins with.
nlohmann::ordered_json frame_of(const ReplyFacts& facts, const char* object);
// The end of a stream of such frames; no usage without one.
std::string last_events(nlohmann::ordered_json frame, const Usage* usage);
// A whole answer of such a frame with choices that are JSON text already: long ones are never values.
std::string whole_of(const nlohmann::ordered_json& frame, const std::vector<std::string>& choices, const Usage& usage);
nlohmann::ordered_json usage_json(const Usage& usage);
// Of an output of the request.
ToolReader tool_reader(const ChatRequest& request, ToolForm form);
// "stop", "length"; a deadline counts as length.
const char* reason_of(infer::Finish finish);
// What chat and responses tell of a token: {"token", "logprob", "bytes", "top_logprobs"}.
nlohmann::ordered_json logprob_json(const text::Tokenizer& tokenizer, const TokenFact& fact);
// Those of all tokens as one JSON array's text: as a value it would take many times that.
std::string logprobs_text(const text::Tokenizer& tokenizer, const std::vector<TokenFact>& facts);
// A token as text: U+FFFD for what is not a whole character.
std::string token_string(const text::Tokenizer& tokenizer, int32_t id);

}  // namespace ingot::server
