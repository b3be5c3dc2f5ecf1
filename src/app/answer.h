// One request through the engine, its text given out as it comes. Shared by generate and chat.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "infer/engine.h"
#include "text/tokenizer.h"

namespace ingot::app {

struct Answer {
  std::string text;          // up to a stop string
  std::vector<int32_t> ids;  // without the stop id; with what a stop string was found in
  infer::Finish finish = infer::Finish::stop;
  double prefill_s = 0;       // until the first token
  double decode_s = 0;        // from the first token to the last
  int64_t decode_tokens = 0;  // chosen in that time
};

// Runs `request` on an engine that has no other. Without a tokenizer there is no text. `emit` gets pieces of text in
// order; `cancelled` is asked after every token.
Answer answer(infer::Engine& engine, infer::Request request, const text::Tokenizer* tokenizer,
              std::vector<std::string> stops, const std::function<void(std::string_view)>& emit,
              const std::function<bool()>& cancelled);

}  // namespace ingot::app
