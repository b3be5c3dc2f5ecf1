// The text of one output as its tokens come: whole characters, nothing of a stop string, and what is told of tokens.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "infer/sampler.h"
#include "text/stop_strings.h"
#include "text/tokenizer.h"

namespace ingot::server {

// A token of the output, or of an echoed prompt, with its place in the text.
struct TokenFact {
  infer::Choice choice;
  size_t begin = 0;    // characters before it, of the output or of the prompt
  bool scored = true;  // false: nothing is before it, so that the model says nothing of it
};

class ChoiceText {
 public:
  // `keep_tokens`: log-probabilities are wanted.
  ChoiceText(const text::Tokenizer& tokenizer, std::vector<std::string> stops, bool keep_tokens);

  // One more token; the text that can be given out for it.
  std::string push(infer::Choice choice);
  // The rest, at the end.
  std::string finish();
  // Behind `finish`: the stop id that ended the output is told of as a token without text. Nothing where a stop string
  // did.
  void tell_end(infer::Choice choice);
  bool stopped() const { return stops_.found(); }

  int64_t tokens() const { return tokens_; }
  double logprob() const { return logprob_; }  // the sum over tokens

  // Tokens whose text has been given out since the last call; at the end all that belong to the text.
  std::vector<TokenFact> take_facts();

 private:
  std::string given(std::string text);

  text::StreamDecoder decoder_;
  text::StopStrings stops_;
  bool keep_;
  bool ended_ = false;
  int64_t tokens_ = 0;
  double logprob_ = 0;
  size_t decoded_ = 0;  // characters
  size_t out_ = 0;      // characters given out
  std::vector<TokenFact> facts_;
};

// The number of characters in UTF-8.
size_t num_characters(std::string_view text);

}  // namespace ingot::server
