// Prompts as token ids.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "server/requests.h"
#include "server/served_model.h"

namespace ingot::server {

// Most numbers that the whole of an answer holds: log-probabilities, elements of embeddings.
constexpr int64_t most_told = int64_t{1} << 22;

// The template's text of a conversation, to be encoded without special tokens. `tools` may be "".
std::string render_chat(const ServedModel& model, std::string_view messages, std::string_view tools);

// Errors: ApiError invalid_value for an id that is outside the vocabulary. `param` is the field it comes from.
void check_id(const ServedModel& model, int32_t id, const std::string& param);

// A prompt as it is put in front of its answer.
struct EchoedPrompt {
  std::string text;
  Ids ids;                     // of which log-probabilities are told; empty where they are not wanted
  std::vector<size_t> begins;  // characters of the text before each of these
  size_t characters = 0;       // of the whole text
};
// Of ids that `encode` gave. `logprobs`: with ids.
EchoedPrompt echoed_prompt(const ServedModel& model, const Prompt& prompt, const Ids& ids, bool logprobs);

// Checked against vocabulary and context, which must have `room` for more tokens. `param` is the field they come from.
Ids encode(const ServedModel& model, std::string_view text, bool add_special_tokens, const std::string& param,
           int64_t room = 1);
Ids encode(const ServedModel& model, const Prompt& prompt, const std::string& param, int64_t room = 1);

}  // namespace ingot::server
