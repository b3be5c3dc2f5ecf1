#include "server/output_detokenizer.h"

namespace ingot::server {

size_t num_characters(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

OutputDetokenizer::OutputDetokenizer(const text::Tokenizer& tokenizer, std::vector<std::string> stops, bool keep_tokens)
    : decoder_(tokenizer, true), stops_(std::move(stops)), keep_(keep_tokens) {}

std::string OutputDetokenizer::given(std::string text) {
  out_ += num_characters(text);
  return text;
}

std::string OutputDetokenizer::push(infer::SampledToken choice) {
  ++tokens_;
  logprob_ += static_cast<double>(choice.logprob);
  const std::string piece = decoder_.push(choice.id);
  if (keep_) entries_.push_back({std::move(choice), decoded_});
  decoded_ += num_characters(piece);
  return given(stops_.push(piece));
}

std::string OutputDetokenizer::finish() {
  const std::string rest = decoder_.finish();
  decoded_ += num_characters(rest);
  std::string text = stops_.push(rest);
  text += stops_.finish();
  ended_ = true;
  return given(std::move(text));
}

void OutputDetokenizer::report_end(infer::SampledToken choice) {
  if (keep_ && !stopped()) entries_.push_back({std::move(choice), decoded_});
}

std::vector<TokenLogprobEntry> OutputDetokenizer::take_logprobs() {
  // A token counts as returned once its text begins within the returned text. A token without text of its own (part of
  // a character) goes with the following text, or at the end with the rest; tokens after a stop string are dropped.
  const auto last = std::find_if(entries_.begin(), entries_.end(), [&](const TokenLogprobEntry& entry) {
    return entry.begin >= out_ && !(ended_ && !stops_.found());
  });
  std::vector<TokenLogprobEntry> out(std::make_move_iterator(entries_.begin()), std::make_move_iterator(last));
  entries_.erase(entries_.begin(), last);
  return out;
}

}  // namespace ingot::server
