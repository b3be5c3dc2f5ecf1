// Passes the outputs of one API request from the engine's thread to the connection's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "infer/service.h"
#include "server/output_detokenizer.h"

namespace ingot::server {

struct OutputSettings {
  std::vector<std::string> stops;
  bool logprobs = false;
  bool report_end = false;  // with logprobs: report the stop id that ended the output as its last token
  size_t per_prompt = 1;    // choices per prompt; the requests of one prompt are adjacent
  int64_t queue = 4096;     // max outputs, plus 64 per choice, that wait for a slow reader; see overflowed()
};

// What one choice has produced since the previous call of take().
struct OutputDelta {
  size_t choice = 0;
  std::string text;
  std::vector<TokenLogprobEntry> logprobs;
  std::vector<infer::SampledToken> prompt;    // as in infer::Output
  std::optional<infer::FinishReason> finish;  // stop, length, deadline
  std::vector<float> embedding;
};

class Outputs {
 public:
  // Submits the requests, one per choice. `wake` is called from the engine's thread. Errors: infer::Service::submit's.
  Outputs(infer::Service& service, const text::Tokenizer& tokenizer, std::vector<infer::Request> requests,
          const OutputSettings& settings, std::function<void()> wake);
  Outputs(const Outputs&) = delete;
  Outputs& operator=(const Outputs&) = delete;
  ~Outputs();  // cancels unfinished choices; `wake` is not called afterwards

  // Returns what has arrived since the previous call, in order. One thread at a time. Errors fail the whole request:
  // the error of a failed infer::Output (ApiError not_finite if it is corrupt); ApiError file_fault when a file of the
  // model has changed; unavailable when out of memory.
  std::vector<OutputDelta> take();

  bool ended() const { return open_ == 0; }        // every choice has finished
  bool overflowed() const { return overflowed_; }  // the reader was too slow: outputs were dropped

  int64_t completion_tokens() const;
  int64_t cached_tokens() const { return cached_; }  // prompt tokens found in the prefix cache
  double mean_logprob(size_t choice) const;          // over its tokens; -infinity if there are none

 private:
  struct Inbox;

  infer::Service& service_;
  std::shared_ptr<Inbox> inbox_;
  std::vector<OutputDetokenizer> choices_;
  std::vector<bool> finished_;
  size_t open_;
  int64_t ticket_ = 0;
  size_t per_prompt_;
  bool report_end_;
  int64_t cached_ = 0;
  bool overflowed_ = false;
};

}  // namespace ingot::server
