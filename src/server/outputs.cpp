#include "server/outputs.h"

#include <iterator>
#include <limits>

#include "base/error.h"
#include "base/mutex.h"
#include "server/api_error.h"
#include "server/attempt.h"

namespace ingot::server {

// Filled by the engine's thread, emptied by the connection's.
struct Outputs::Inbox {
  struct Content {
    std::vector<infer::Output> outputs;
    bool overflowed = false;
    bool no_memory = false;  // out of memory: outputs are missing
  };
  Guarded<Content> content;
};

Outputs::Outputs(infer::Service& service, const text::Tokenizer& tokenizer, std::vector<infer::Request> requests,
                 const OutputSettings& settings, std::function<void()> wake)
    : service_(service),
      inbox_(std::make_shared<Inbox>()),
      finished_(requests.size(), false),
      open_(requests.size()),
      per_prompt_(settings.per_prompt),
      report_end_(settings.report_end) {
  for (size_t i = 0; i < requests.size(); ++i) choices_.emplace_back(tokenizer, settings.stops, settings.logprobs);
  const size_t max_queued = static_cast<size_t>(settings.queue) + 64 * requests.size();
  ticket_ =
      service.submit(std::move(requests), [inbox = inbox_, wake = std::move(wake), max_queued](infer::Output output) {
        bool news = false;
        bool going = true;
        {
          auto content = inbox->content.lock();
          if (content->overflowed || content->no_memory) return false;
          news = content->outputs.empty();
          if (content->outputs.size() >= max_queued) {
            content->overflowed = true;
            content->outputs.clear();
          } else if (!attempt([&] { content->outputs.push_back(std::move(output)); })) {
            content->no_memory = news = true;
            going = false;
          }
        }
        // If this fails, the connection notices when it polls by itself.
        if (news) attempt(wake);
        return going;
      });
}

Outputs::~Outputs() { service_.cancel(ticket_); }

std::vector<OutputDelta> Outputs::take() {
  std::vector<infer::Output> outputs;
  {
    auto content = inbox_->content.lock();
    outputs.swap(content->outputs);
    overflowed_ = content->overflowed;
    if (content->no_memory) throw Error(ErrorKind::unavailable, "The server is out of memory.");
  }
  std::vector<OutputDelta> pieces;
  for (infer::Output& output : outputs) {
    const size_t index = static_cast<size_t>(output.request);
    if (finished_[index]) continue;  // it ran for another step after a stop string
    OutputDetokenizer& choice = choices_[index];
    // Outputs of one choice are merged into one piece.
    const auto same =
        std::find_if(pieces.rbegin(), pieces.rend(), [&](const OutputDelta& p) { return p.choice == index; });
    OutputDelta& piece = same != pieces.rend() ? *same : pieces.emplace_back();
    piece.choice = index;
    if (index % per_prompt_ == 0) cached_ += output.cached_tokens;  // counts each prompt once
    std::move(output.prompt.begin(), output.prompt.end(), std::back_inserter(piece.prompt));
    if (output.token) piece.text += choice.push(std::move(*output.token));
    piece.embedding = std::move(output.embedding);
    if (!output.file.empty()) throw file_fault(output.file);
    if (output.finish == infer::FinishReason::failed) {
      if (output.kind == ErrorKind::corrupt) throw server_error("not_finite", output.error);
      throw Error(output.kind, output.error);
    }
    if (choice.stopped() && !output.finish) service_.cancel(ticket_, output.request);
    if (choice.stopped() || output.finish) {
      piece.text += choice.finish();
      if (report_end_ && output.ended_by) choice.report_end(std::move(*output.ended_by));
      // The rest of the text may complete a stop string too.
      piece.finish = choice.stopped() ? infer::FinishReason::stop : output.finish;
      finished_[index] = true;
      --open_;
    }
  }
  for (OutputDelta& piece : pieces) piece.logprobs = choices_[piece.choice].take_logprobs();
  return pieces;
}

int64_t Outputs::completion_tokens() const {
  int64_t tokens = 0;
  for (const OutputDetokenizer& choice : choices_) tokens += choice.tokens();
  return tokens;
}

double Outputs::mean_logprob(size_t choice) const {
  const OutputDetokenizer& text = choices_[choice];
  if (text.tokens() == 0) return -std::numeric_limits<double>::infinity();
  return text.logprob() / static_cast<double>(text.tokens());
}

}  // namespace ingot::server
