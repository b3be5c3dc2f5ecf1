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
constexpr int64_t max_answer_numbers = int64_t{1} << 22;

// What the template makes of a conversation. `tools` may be "". Where the model allows special tokens in contents,
// nothing of it counts as content. `variables`: further ones for the template, as the text of an object, or "".
// `param` is the field that the messages come from.
text::ChatText render_chat(const ServedModel& model, std::string_view messages, std::string_view tools,
                           const std::string& variables, const std::string& param = "messages");

// Errors: ApiError invalid_value for an id that is outside the vocabulary. `param` is the field it comes from.
void check_id(const ServedModel& model, int32_t id, const std::string& param);

// Errors: ApiError context_length_exceeded for a text of more bytes than the tokens of a whole context can stand for:
// before it is tokenized, which takes time for a long one. Of a tokenizer that drops white space or has one token for
// whatever it does not know, a text that long could fit, and is refused all the same.
void check_bytes(const ServedModel& model, std::string_view text, const std::string& param);

// A prompt as it is put in front of its answer.
struct EchoedPrompt {
  std::string text;
  Ids ids;                     // of which log-probabilities are given; empty where they are not wanted
  std::vector<size_t> begins;  // characters of the text before each of these
  size_t characters = 0;       // of the whole text
};
// `ids`: those of the prompt, as `encode` gives them. `logprobs`: log-probabilities are wanted, so that `ids` and
// `begins` are filled.
EchoedPrompt echoed_prompt(const ServedModel& model, const Prompt& prompt, const Ids& ids, bool logprobs);

// The prompt's ids. Errors: ApiError where an id is outside the vocabulary, or the context has no room for `room` more
// tokens behind the prompt. `param` is the field that the prompt comes from.
Ids encode(const ServedModel& model, std::string_view text, bool add_special_tokens, const std::string& param,
           int64_t room = 1);
Ids encode(const ServedModel& model, const Prompt& prompt, const std::string& param, int64_t room = 1);
Ids encode(const ServedModel& model, const text::ChatText& chat, const std::string& param);

}  // namespace ingot::server
