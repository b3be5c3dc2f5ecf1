#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "server/reply_json.h"

namespace ingot::server {

namespace {

using Json = nlohmann::ordered_json;

class CompletionReply : public Reply {
 public:
  CompletionReply(const CompletionRequest& request, std::vector<std::string> prompts, ReplyFacts facts)
      : facts_(std::move(facts)),
        prompts_(std::move(prompts)),
        n_(static_cast<size_t>(request.n)),
        best_of_(static_cast<size_t>(request.best_of)),
        stream_(request.stream),
        include_usage_(request.include_usage),
        logprobs_(request.logprobs),
        choices_(request.prompts.size() * best_of_) {}

  std::string begin() override {
    std::string events;
    for (size_t i = 0; i < choices_.size(); ++i) {
      const std::string& prompt = echo(i);
      if (!prompt.empty()) events += chunk(i, prompt, nullptr, nullptr);
    }
    return events;
  }

  std::string push(std::vector<Piece> pieces) override {
    std::string events;
    for (Piece& piece : pieces) {
      if (!stream_) {
        Choice& choice = choices_[piece.choice];
        choice.text += piece.text;
        if (piece.finish) choice.reason = reason_of(*piece.finish);
        std::move(piece.facts.begin(), piece.facts.end(), std::back_inserter(choice.facts));
        continue;
      }
      if (!piece.text.empty() || !piece.facts.empty()) {
        const std::string logprobs = logprobs_text(piece.facts);
        events += chunk(piece.choice, piece.text, Json::parse(logprobs), nullptr);
      }
      if (piece.finish) events += chunk(piece.choice, "", nullptr, reason_of(*piece.finish));
    }
    return events;
  }

  std::string end(const Usage& usage) override {
    return last_events(frame_of(facts_, "text_completion"), include_usage_ ? &usage : nullptr);
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
                                   line_of(echo(order[i]) + choice.text), list.size(), logprobs_text(choice.facts),
                                   choice.reason));
      }
    }
    return whole_of(frame_of(facts_, "text_completion"), list, usage);
  }

 private:
  // Of a whole answer only.
  struct Choice {
    std::string text;
    std::string reason;
    std::vector<TokenFact> facts;
  };

  const std::string& echo(size_t choice) const {
    static const std::string none;
    return prompts_.empty() ? none : prompts_[choice / best_of_];
  }

  std::string chunk(size_t index, const std::string& text, Json logprobs, Json reason) const {
    Json out = frame_of(facts_, "text_completion");
    out["choices"] = Json::array(
        {{{"text", text}, {"index", index}, {"logprobs", std::move(logprobs)}, {"finish_reason", std::move(reason)}}});
    if (include_usage_) out["usage"] = nullptr;
    return event(line_of(out));
  }

  // As JSON text: as values all of a choice would take many times that. Offsets count from the output's own beginning.
  std::string logprobs_text(const std::vector<TokenFact>& facts) const {
    if (!logprobs_) return "null";
    std::vector<std::string> tokens, logprobs, tops, offsets;
    for (const TokenFact& fact : facts) {
      const std::string token = token_string(*facts_.tokenizer, fact.choice.id);
      Json top = {{token, fact.choice.logprob}};
      for (const infer::Likely& likely : fact.choice.top) {
        top[token_string(*facts_.tokenizer, likely.id)] = likely.logprob;
      }
      tokens.push_back(line_of(token));
      logprobs.push_back(line_of(fact.choice.logprob));
      tops.push_back(line_of(top));
      offsets.push_back(std::to_string(fact.begin));
    }
    return fmt::format(R"({{"tokens":[{}],"token_logprobs":[{}],"top_logprobs":[{}],"text_offset":[{}]}})",
                       fmt::join(tokens, ","), fmt::join(logprobs, ","), fmt::join(tops, ","), fmt::join(offsets, ","));
  }

  ReplyFacts facts_;
  std::vector<std::string> prompts_;
  size_t n_;
  size_t best_of_;
  bool stream_;
  bool include_usage_;
  bool logprobs_;
  std::vector<Choice> choices_;
};

}  // namespace

std::unique_ptr<Reply> completion_reply(const CompletionRequest& request, std::vector<std::string> prompts,
                                        ReplyFacts facts) {
  return std::make_unique<CompletionReply>(request, std::move(prompts), std::move(facts));
}

}  // namespace ingot::server
