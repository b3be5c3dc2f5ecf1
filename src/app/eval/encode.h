// Questions to token ids.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/eval/task.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace ingot::app::eval {

// What of a model turns text into ids. `chat` is null without a chat template.
struct TextModel {
  const text::Tokenizer& tokenizer;
  const text::ChatTemplate* chat = nullptr;
  std::string bos, eos;  // as the template calls them
  std::string name;      // of the model, for errors
};

// A text as the start of a document (data/tokenized.h); messages through the chat template, up to the beginning of the
// assistant's turn. Errors: usage for messages without a chat template; those of the template.
std::vector<int32_t> encode_prompt(const Prompt& prompt, const TextModel& model);

struct EncodedChoices {
  std::vector<int32_t> context;
  std::vector<std::vector<int32_t>> choices;
  bool truncated = false;  // the context lost its beginning
};

// As lm-evaluation-harness divides context and continuation: white space at the context's end goes to the continuation,
// both are encoded as one text, and the continuation is what lies behind as many tokens as the context alone has. An
// empty context is BOS (or EOS) alone. Behind messages a choice is encoded by itself, as an answer is when it is
// trained. A context that is too long loses its first tokens, so that the longest choice fits in `most_tokens` (of
// which a choice's last token is none, since nothing follows it). Errors: as encode_prompt; corrupt for a choice
// without tokens, unsupported for an empty context without BOS and EOS, resource for a choice that does not fit.
EncodedChoices encode_choices(const ChoiceItem& item, const TextModel& model, int64_t most_tokens);

}  // namespace ingot::app::eval
