// Prompts as token ids.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "server/requests.h"
#include "server/served_model.h"

namespace ingot::server {

// Max numbers in a whole answer: log-probabilities, elements of embeddings.
constexpr int64_t max_answer_numbers = int64_t{1} << 22;

// Renders a conversation with the model's chat template. `tools` may be "". If the model allows special tokens in
// contents, no part of the text is marked as content. `variables`: further ones for the template, as the text of a JSON
// object, or "". `param` is the field that the messages come from.
text::ChatText render_chat(const ServedModel& model, std::string_view messages, std::string_view tools,
                           const std::string& variables, const std::string& param = "messages");

// Errors: ApiError invalid_value for an id outside the vocabulary. `param` is the field that it comes from.
void check_id(const ServedModel& model, int32_t id, const std::string& param);

// Errors: ApiError context_length_exceeded for a text with more bytes than a full context of the longest tokens;
// checked before tokenization, which takes long for such a text. With a tokenizer that drops white space or maps all
// unknown text to one token, the text might fit, and is refused all the same.
void check_bytes(const ServedModel& model, std::string_view text, const std::string& param);

// A prompt that is repeated before its answer (`echo`).
struct EchoedPrompt {
  std::string text;
  Ids ids;                     // for log-probabilities; empty if they are not requested
  std::vector<size_t> begins;  // characters of the text before each id
  size_t characters = 0;       // characters of the whole text
};
// `ids`: of the prompt, as returned by `encode`. `logprobs`: log-probabilities are requested, so that `ids` and
// `begins` are filled.
EchoedPrompt echoed_prompt(const ServedModel& model, const Prompt& prompt, const Ids& ids, bool logprobs);

// The prompt's ids. Errors: ApiError when the prompt is empty, an id is outside the vocabulary, or the context has no
// room for `room` more tokens after the prompt. `param` is the field that the prompt comes from.
Ids encode(const ServedModel& model, std::string_view text, bool add_special_tokens, const std::string& param,
           int64_t room = 1);
Ids encode(const ServedModel& model, const Prompt& prompt, const std::string& param, int64_t room = 1);
Ids encode(const ServedModel& model, const text::ChatText& chat, const std::string& param);

}  // namespace ingot::server
