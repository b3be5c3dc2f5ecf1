#include <fmt/format.h>

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

  std::string push(const std::vector<Piece>& pieces) override {
    std::string events;
    for (const Piece& piece : pieces) {
      Choice& choice = choices_[piece.choice];
      Json logprobs = logprobs_ ? Json(columns()) : Json();
      if (logprobs_) {
        const size_t before = num_characters(echo(piece.choice));
        for (const TokenFact& fact : piece.facts) {
          add(logprobs, fact, before);
          add(choice.logprobs, fact, before);
        }
      }
      choice.text += piece.text;
      if (piece.finish) choice.reason = reason_of(*piece.finish);
      if (!piece.text.empty() || !piece.facts.empty()) {
        events += chunk(piece.choice, piece.text, std::move(logprobs), nullptr);
      }
      if (piece.finish) events += chunk(piece.choice, "", nullptr, choice.reason);
    }
    return events;
  }

  std::string end(const Usage& usage) override {
    std::string events;
    if (include_usage_) {
      Json last = frame();
      last["choices"] = Json::array();
      last["usage"] = usage_json(usage);
      events += event(line_of(last));
    }
    return events + "data: [DONE]\n\n";
  }

  std::string body(const Generation& generation, const Usage& usage) override {
    Json list = Json::array();
    for (size_t first = 0; first < choices_.size(); first += best_of_) {
      std::vector<size_t> order(best_of_);
      for (size_t i = 0; i < best_of_; ++i) order[i] = first + i;
      if (best_of_ > n_) {
        std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
          return std::pair(-generation.mean_logprob(a), a) < std::pair(-generation.mean_logprob(b), b);
        });
      }
      for (size_t i = 0; i < n_; ++i) {
        const Choice& choice = choices_[order[i]];
        list.push_back({{"text", echo(order[i]) + choice.text},
                        {"index", list.size()},
                        {"logprobs", logprobs_ ? choice.logprobs : Json()},
                        {"finish_reason", choice.reason}});
      }
    }
    Json whole = frame();
    whole["choices"] = std::move(list);
    whole["usage"] = usage_json(usage);
    return line_of(whole);
  }

 private:
  static Json columns() {
    return {{"tokens", Json::array()},
            {"token_logprobs", Json::array()},
            {"top_logprobs", Json::array()},
            {"text_offset", Json::array()}};
  }
  struct Choice {
    std::string text;
    std::string reason;
    Json logprobs = columns();
  };

  const std::string& echo(size_t choice) const {
    static const std::string none;
    return prompts_.empty() ? none : prompts_[choice / best_of_];
  }

  Json frame() const {
    return {{"id", facts_.id},
            {"object", "text_completion"},
            {"created", facts_.created},
            {"model", facts_.model},
            {"system_fingerprint", facts_.fingerprint}};
  }

  std::string chunk(size_t index, const std::string& text, Json logprobs, Json reason) const {
    Json out = frame();
    out["choices"] = Json::array(
        {{{"text", text}, {"index", index}, {"logprobs", std::move(logprobs)}, {"finish_reason", std::move(reason)}}});
    if (include_usage_) out["usage"] = nullptr;
    return event(line_of(out));
  }

  void add(Json& logprobs, const TokenFact& fact, size_t before) const {
    const std::string token = token_string(*facts_.tokenizer, fact.choice.id);
    logprobs["tokens"].push_back(token);
    logprobs["token_logprobs"].push_back(fact.choice.logprob);
    Json top = {{token, fact.choice.logprob}};
    for (const infer::Likely& likely : fact.choice.top) {
      top[token_string(*facts_.tokenizer, likely.id)] = likely.logprob;
    }
    logprobs["top_logprobs"].push_back(std::move(top));
    logprobs["text_offset"].push_back(before + fact.begin);
  }

  ReplyFacts facts_;
  std::vector<std::string> prompts_;
  size_t n_;
  size_t best_of_;
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
