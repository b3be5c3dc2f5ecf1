// Runs one request through the engine and streams its text. Shared by generate and chat.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "infer/engine.h"
#include "text/tokenizer.h"

namespace ingot::infer {

struct Answer {
  std::string text;          // up to a stop string
  std::vector<int32_t> ids;  // without the end-of-text id; includes the tokens of a stop string
  FinishReason finish = FinishReason::stop;
  double prefill_s = 0;       // until the first token
  double decode_s = 0;        // from the first token to the last
  int64_t decode_tokens = 0;  // tokens generated in that time
};

// Runs `request` on an engine that has no other requests. Without a tokenizer there is no text. `emit` receives pieces
// of text in order; `cancelled` is polled after every engine step.
Answer answer(Engine& engine, Request request, const text::Tokenizer* tokenizer, std::vector<std::string> stops,
              const std::function<void(std::string_view)>& emit, const std::function<bool()>& cancelled);

}  // namespace ingot::infer
