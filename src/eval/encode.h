// Encodes questions as token ids.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "eval/task.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace ingot::eval {

// The parts of a model that turn text into ids. `chat` is null without a chat template.
struct TextModel {
  const text::Tokenizer& tokenizer;
  const text::ChatTemplate* chat = nullptr;
  std::string bos, eos;  // the template's bos_token and eos_token
  std::string name;      // the model's name, for errors
};

// Encodes a text as the start of a document (data/tokenized.h), or messages with the chat template, up to the beginning
// of the assistant's turn. Errors: usage for messages without a chat template; those of the template.
std::vector<int32_t> encode_prompt(const Prompt& prompt, const TextModel& model);

struct EncodedChoices {
  std::vector<int32_t> context;
  std::vector<std::vector<int32_t>> choices;
  bool truncated = false;  // the beginning of the context was cut off
};

// Splits context and continuation like lm-evaluation-harness: white space at the context's end moves to the
// continuation, both are encoded as one text, and the continuation is the tokens after the first n, where n is the
// number of tokens of the context alone. An empty context is BOS (or EOS) alone. After messages a choice is encoded by
// itself, like an answer in training. The first tokens of a context that is too long are dropped, so that the longest
// choice fits in `max_tokens` (a choice's last token is not counted, since no prediction follows it). Errors: as
// encode_prompt; corrupt for a choice without tokens, unsupported for an empty context without BOS and EOS, resource
// for a choice that does not fit.
EncodedChoices encode_choices(const ChoiceItem& item, const TextModel& model, int64_t max_tokens);

}  // namespace ingot::eval
