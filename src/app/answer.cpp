#include "app/answer.h"

#include <algorithm>

#include "base/clock.h"
#include "base/error.h"

namespace ingot::app {

StopStrings::StopStrings(std::vector<std::string> stops) : stops_(std::move(stops)) {
  for (const std::string& stop : stops_) {
    if (stop.empty()) throw_error(ErrorKind::usage, "a stop string is empty");
  }
}

std::string StopStrings::push(std::string_view piece) {
  if (found_) return {};
  held_ += piece;
  size_t end = std::string::npos;
  for (const std::string& stop : stops_) end = std::min(end, held_.find(stop));
  if (end != std::string::npos) {
    found_ = true;
    return held_.substr(0, end);
  }
  // The longest end of the text that a stop string begins with is held back.
  size_t keep = 0;
  for (const std::string& stop : stops_) {
    for (size_t n = std::min(stop.size() - 1, held_.size()); n > keep; --n) {
      if (held_.ends_with(std::string_view(stop).substr(0, n))) keep = n;
    }
  }
  std::string free = held_.substr(0, held_.size() - keep);
  held_.erase(0, free.size());
  return free;
}

std::string StopStrings::finish() { return found_ ? std::string() : std::move(held_); }

Answer answer(infer::Engine& engine, infer::Request request, const text::Tokenizer* tokenizer,
              std::vector<std::string> stops, const std::function<void(std::string_view)>& emit,
              const std::function<bool()>& cancelled) {
  Answer result;
  StopStrings stop_strings(std::move(stops));
  std::optional<text::StreamDecoder> decoder;
  if (tokenizer) decoder.emplace(*tokenizer, true);
  const auto give = [&](const std::string& text) {
    if (text.empty()) return;
    result.text += text;
    emit(text);
  };

  const double started = steady_seconds();
  double first = 0;
  const int64_t id = engine.submit(std::move(request));
  while (!engine.idle()) {
    for (const infer::Output& output : engine.step()) {
      const double now = steady_seconds();
      if (first == 0) {
        first = now;
        result.prefill_s = now - started;
      } else if (output.token) {
        ++result.decode_tokens;
        result.decode_s = now - first;
      }
      if (output.token && !stop_strings.found()) {
        result.ids.push_back(output.token->id);
        if (decoder) give(stop_strings.push(decoder->push(output.token->id)));
      }
      if (output.finish) result.finish = *output.finish;
    }
    if (!engine.idle() && (stop_strings.found() || cancelled())) engine.cancel(id);
  }
  if (decoder) give(stop_strings.push(decoder->finish()));
  give(stop_strings.finish());
  if (stop_strings.found()) result.finish = infer::Finish::stop;
  return result;
}

}  // namespace ingot::app
