// Incremental detokenisation of one output: emits whole characters, nothing of a stop string, and log-probabilities of
// tokens.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "infer/sampler.h"
#include "text/stop_strings.h"
#include "text/tokenizer.h"

namespace ingot::server {

// A token of the output, or of an echoed prompt, with its log-probability and its position in the text.
struct TokenLogprobEntry {
  infer::SampledToken choice;
  size_t begin = 0;    // characters before it, in the output or in the prompt
  bool scored = true;  // false: the first token of a prompt, which has no log-probability
};

class OutputDetokenizer {
 public:
  // `keep_tokens`: whether log-probabilities are needed.
  OutputDetokenizer(const text::Tokenizer& tokenizer, std::vector<std::string> stops, bool keep_tokens);

  // Adds a token; returns the text that can be sent now.
  std::string push(infer::SampledToken choice);
  // Returns the rest of the text, at the end.
  std::string finish();
  // After `finish`: adds the stop id that ended the output as a token without text; nothing if a stop string ended it.
  void report_end(infer::SampledToken choice);
  bool stopped() const { return stops_.found(); }

  int64_t tokens() const { return tokens_; }
  double logprob() const { return logprob_; }  // sum over tokens

  // Tokens whose text was returned since the last call; at the end, all that belong to the text.
  std::vector<TokenLogprobEntry> take_logprobs();

 private:
  std::string given(std::string text);

  text::StreamDecoder decoder_;
  text::StopStrings stops_;
  bool keep_;
  bool ended_ = false;
  int64_t tokens_ = 0;
  double logprob_ = 0;
  size_t decoded_ = 0;  // characters decoded
  size_t out_ = 0;      // characters returned
  std::vector<TokenLogprobEntry> entries_;
};

// The number of characters in UTF-8.
size_t num_characters(std::string_view text);

}  // namespace ingot::server
