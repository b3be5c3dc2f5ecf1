// The outputs of one API request: from the engine's thread to the connection's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "infer/service.h"
#include "server/choice_text.h"

namespace ingot::server {

struct OutputSettings {
  std::vector<std::string> stops;
  bool logprobs = false;
  bool tell_end = false;  // of a stop id at the end, too; with logprobs
  size_t per_prompt = 1;  // choices of one prompt, one behind another
  int64_t queue = 4096;   // most outputs that wait for a slow reader; then the request is given up
};

// What one output gave since it was asked last.
struct Piece {
  size_t choice = 0;
  std::string text;
  std::vector<TokenFact> facts;
  std::vector<infer::Choice> prompt;    // infer::Output's
  std::optional<infer::Finish> finish;  // stop, length, deadline
  std::vector<float> embedding;
};

class Outputs {
 public:
  // Submits the requests, one a choice. `wake` is called from the engine's thread. Errors: infer::Service::submit's.
  Outputs(infer::Service& service, const text::Tokenizer& tokenizer, std::vector<infer::Request> requests,
          const OutputSettings& settings, std::function<void()> wake);
  Outputs(const Outputs&) = delete;
  Outputs& operator=(const Outputs&) = delete;
  ~Outputs();  // cancels what is left; `wake` is not called afterwards

  // What there is by now, in the order in which it was made. One thread at a time. Errors: infer::Output's when one of
  // them has failed, which the whole request does then; ApiError file_fault; unavailable without memory.
  std::vector<Piece> take();

  bool ended() const { return open_ == 0; }        // every choice has its finish
  bool overflowed() const { return overflowed_; }  // the reader was too slow

  int64_t completion_tokens() const;
  int64_t cached_tokens() const { return cached_; }  // of the prompts, in the prefix cache
  double mean_logprob(size_t choice) const;          // of its tokens; -infinity without any

 private:
  struct Inbox;

  infer::Service& service_;
  std::shared_ptr<Inbox> inbox_;
  std::vector<ChoiceText> choices_;
  std::vector<bool> finished_;
  size_t open_;
  int64_t ticket_ = 0;
  size_t per_prompt_;
  bool tell_end_;
  int64_t cached_ = 0;
  bool overflowed_ = false;
};

}  // namespace ingot::server
