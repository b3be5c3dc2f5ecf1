#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "server/reply_json.h"

namespace ingot::server {

namespace {

using Json = nlohmann::ordered_json;

class CompletionReply : public Reply {
 public:
  CompletionReply(const CompletionRequest& request, std::vector<EchoedPrompt> prompts, ReplyInfo info)
      : info_(std::move(info)),
        prompts_(std::move(prompts)),
        n_(static_cast<size_t>(request.n)),
        best_of_(static_cast<size_t>(request.best_of)),
        stream_(request.stream),
        include_usage_(request.include_usage),
        logprobs_(request.logprobs),
        choices_(request.prompts.size() * best_of_),
        scored_(choices_.size()) {}

  std::string begin() override {
    std::string events;
    for (size_t i = 0; i < choices_.size(); ++i) {
      const EchoedPrompt& prompt = echo(i);
      const std::vector<TokenLogprobEntry> entries = prompt_logprobs(i, {});
      if (!prompt.text.empty() || !entries.empty()) events += chunk(i, prompt.text, logprobs_json(entries), nullptr);
    }
    return events;
  }

  std::string push(std::vector<OutputDelta> pieces) override {
    std::string events;
    for (OutputDelta& piece : pieces) {
      piece.logprobs = delta_logprobs(piece);
      if (!stream_) {
        Choice& choice = choices_[piece.choice];
        choice.text += piece.text;
        if (piece.finish) choice.reason = finish_reason(*piece.finish);
        std::move(piece.logprobs.begin(), piece.logprobs.end(), std::back_inserter(choice.logprobs));
        continue;
      }
      if (!piece.text.empty() || !piece.logprobs.empty()) {
        events += chunk(piece.choice, piece.text, logprobs_json(piece.logprobs), nullptr);
      }
      if (piece.finish) events += chunk(piece.choice, "", nullptr, finish_reason(*piece.finish));
    }
    return events;
  }

  std::string end(const Usage& usage) override {
    return last_events(frame_of(info_, "text_completion"), include_usage_ ? &usage : nullptr);
  }

  std::string body(const Outputs& outputs, const Usage& usage) override {
    std::vector<std::string> list;
    for (size_t first = 0; first < choices_.size(); first += best_of_) {
      std::vector<size_t> order(best_of_);
      for (size_t i = 0; i < best_of_; ++i) order[i] = first + i;
      if (best_of_ > n_) {
        std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
          return std::pair(-outputs.mean_logprob(a), a) < std::pair(-outputs.mean_logprob(b), b);
        });
      }
      for (size_t i = 0; i < n_; ++i) {
        const Choice& choice = choices_[order[i]];
        list.push_back(fmt::format(R"({{"text":{},"index":{},"logprobs":{},"finish_reason":"{}"}})",
                                   line_of(echo(order[i]).text + choice.text), list.size(),
                                   logprobs_of(choice.logprobs), choice.reason));
      }
    }
    return complete_reply(frame_of(info_, "text_completion"), list, usage);
  }

 private:
  // Only without streaming.
  struct Choice {
    std::string text;
    std::string reason;
    std::vector<TokenLogprobEntry> logprobs;
  };

  const EchoedPrompt& echo(size_t choice) const {
    static const EchoedPrompt none;
    return prompts_.empty() ? none : prompts_[choice / best_of_];
  }

  // The entries of the prompt's next tokens; the first one has no log-probability.
  std::vector<TokenLogprobEntry> prompt_logprobs(size_t choice, std::vector<infer::SampledToken> known) {
    const EchoedPrompt& prompt = echo(choice);
    size_t& next = scored_[choice];
    std::vector<TokenLogprobEntry> entries;
    if (next == 0 && !prompt.ids.empty()) entries.push_back({{prompt.ids[next], 0, {}}, prompt.begins[next++], false});
    for (infer::SampledToken& one : known) entries.push_back({std::move(one), prompt.begins.at(next++)});
    return entries;
  }

  // The token entries of a piece, the prompt's first, with positions in the whole text.
  std::vector<TokenLogprobEntry> delta_logprobs(OutputDelta& piece) {
    std::vector<TokenLogprobEntry> entries = prompt_logprobs(piece.choice, std::move(piece.prompt));
    const size_t before = echo(piece.choice).ids.empty() ? 0 : echo(piece.choice).characters;
    for (TokenLogprobEntry& entry : piece.logprobs) {
      entry.begin += before;
      entries.push_back(std::move(entry));
    }
    return entries;
  }

  std::string chunk(size_t index, const std::string& text, Json logprobs, Json reason) const {
    Json out = frame_of(info_, "text_completion");
    out["choices"] = Json::array(
        {{{"text", text}, {"index", index}, {"logprobs", std::move(logprobs)}, {"finish_reason", std::move(reason)}}});
    if (include_usage_) out["usage"] = nullptr;
    return event(line_of(out));
  }

  Json logprobs_json(const std::vector<TokenLogprobEntry>& entries) const {
    return entries.empty() ? Json() : parse_lenient_ordered_json(logprobs_of(entries));
  }

  // As JSON text: as JSON values all of a choice would take many times the memory. Offsets count from the beginning of
  // the text, or from the end of an echoed prompt that is returned without log-probabilities.
  std::string logprobs_of(const std::vector<TokenLogprobEntry>& entries) const {
    if (!logprobs_) return "null";
    std::vector<std::string> tokens, logprobs, tops, offsets;
    for (const TokenLogprobEntry& entry : entries) {
      const std::string token = token_string(*info_.tokenizer, entry.choice.id);
      tokens.push_back(line_of(token));
      offsets.push_back(std::to_string(entry.begin));
      logprobs.push_back(entry.scored ? line_of(entry.choice.logprob) : "null");
      tops.push_back(entry.scored ? line_of(top_of(token, entry.choice)) : "null");
    }
    return fmt::format(R"({{"tokens":[{}],"token_logprobs":[{}],"top_logprobs":[{}],"text_offset":[{}]}})",
                       fmt::join(tokens, ","), fmt::join(logprobs, ","), fmt::join(tops, ","), fmt::join(offsets, ","));
  }

  // Keyed by token text. Several tokens may have the same text, such as parts of characters: the most likely one
  // counts.
  Json top_of(const std::string& token, const infer::SampledToken& choice) const {
    Json top = {{token, choice.logprob}};
    for (const infer::TokenLogprob& likely : choice.top) {
      const auto found = top.emplace(token_string(*info_.tokenizer, likely.id), likely.logprob);
      if (*found.first < Json(likely.logprob)) *found.first = likely.logprob;
    }
    return top;
  }

  ReplyInfo info_;
  std::vector<EchoedPrompt> prompts_;
  size_t n_;
  size_t best_of_;
  bool stream_;
  bool include_usage_;
  bool logprobs_;
  std::vector<Choice> choices_;
  std::vector<size_t> scored_;  // by choice: prompt tokens whose entries were returned
};

}  // namespace

std::unique_ptr<Reply> completion_reply(const CompletionRequest& request, std::vector<EchoedPrompt> prompts,
                                        ReplyInfo info) {
  return std::make_unique<CompletionReply>(request, std::move(prompts), std::move(info));
}

}  // namespace ingot::server
