#include "infer/answer.h"

#include "base/clock.h"
#include "base/error.h"
#include "text/stop_strings.h"

namespace ingot::infer {

Answer answer(Engine& engine, Request request, const text::Tokenizer* tokenizer, std::vector<std::string> stops,
              const std::function<void(std::string_view)>& emit, const std::function<bool()>& cancelled) {
  Answer result;
  text::StopStrings stop_strings(std::move(stops));
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
    for (const Output& output : engine.step()) {
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
      if (output.finish == FinishReason::failed) throw Error(output.kind, output.error);
      if (output.finish) result.finish = *output.finish;
    }
    if (!engine.idle() && (stop_strings.found() || cancelled())) engine.cancel(id);
  }
  if (decoder) give(stop_strings.push(decoder->finish()));
  give(stop_strings.finish());
  if (stop_strings.found()) result.finish = FinishReason::stop;
  return result;
}

}  // namespace ingot::infer
