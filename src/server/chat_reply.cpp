#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "server/ids.h"
#include "server/reply_json.h"

namespace ingot::server {

namespace {

using Json = nlohmann::ordered_json;

Json bytes_of(const std::string& bytes) {
  Json list = Json::array();
  for (const char c : bytes) list.push_back(static_cast<unsigned char>(c));
  return list;
}

class ChatReply : public Reply {
 public:
  ChatReply(const ChatRequest& request, ToolForm form, ReplyFacts facts)
      : facts_(std::move(facts)), include_usage_(request.include_usage), logprobs_(request.logprobs) {
    std::vector<std::string> names;
    for (const Tool& tool : request.tool_list) names.push_back(tool.name);
    for (int64_t i = 0; i < request.n; ++i) choices_.emplace_back(ToolReader(form, names));
  }

  std::string begin() override {
    std::string events;
    for (size_t i = 0; i < choices_.size(); ++i) {
      events += chunk(i, {{"role", "assistant"}, {"content", ""}}, nullptr, nullptr);
    }
    return events;
  }

  std::string push(const std::vector<Piece>& pieces) override {
    std::string events;
    for (const Piece& piece : pieces) {
      Choice& choice = choices_[piece.choice];
      std::string text = choice.tools.push(piece.text);
      if (piece.finish) text += choice.tools.finish();
      const Json logprobs = logprobs_ ? logprobs_of(piece.facts) : Json();
      if (logprobs_) {
        for (const Json& token : logprobs) choice.logprobs.push_back(token);
      }
      choice.content += text;
      if (!text.empty() || !logprobs.empty()) {
        events += chunk(piece.choice, {{"content", text}},
                        logprobs_ ? Json{{"content", logprobs}, {"refusal", nullptr}} : Json(), nullptr);
      }
      if (piece.finish) events += finish(piece.choice, *piece.finish);
    }
    return events;
  }

  std::string end(const Usage& usage) override {
    std::string events;
    if (include_usage_) {
      Json last = frame("chat.completion.chunk");
      last["choices"] = Json::array();
      last["usage"] = usage_json(usage);
      events += event(line_of(last));
    }
    return events + "data: [DONE]\n\n";
  }

  std::string body(const Generation&, const Usage& usage) override {
    Json list = Json::array();
    for (size_t i = 0; i < choices_.size(); ++i) {
      const Choice& choice = choices_[i];
      const std::vector<ToolCall>& calls = choice.tools.calls();
      Json message = {{"role", "assistant"}, {"content", choice.content}, {"refusal", nullptr}};
      if (!calls.empty()) {
        if (choice.content.empty()) message["content"] = nullptr;
        message["tool_calls"] = Json::array();
        for (const ToolCall& call : calls) {
          message["tool_calls"].push_back({{"id", make_id("call_")},
                                           {"type", "function"},
                                           {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
        }
      }
      message["annotations"] = Json::array();
      list.push_back({{"index", i},
                      {"message", message},
                      {"logprobs", logprobs_ ? Json{{"content", choice.logprobs}, {"refusal", nullptr}} : Json()},
                      {"finish_reason", choice.reason}});
    }
    Json whole = frame("chat.completion");
    whole["service_tier"] = nullptr;
    whole["choices"] = std::move(list);
    whole["usage"] = usage_json(usage);
    return line_of(whole);
  }

 private:
  struct Choice {
    explicit Choice(ToolReader reader) : tools(std::move(reader)) {}
    ToolReader tools;
    std::string content;
    Json logprobs = Json::array();
    std::string reason;
  };

  Json frame(const char* object) const {
    return {{"id", facts_.id},
            {"object", object},
            {"created", facts_.created},
            {"model", facts_.model},
            {"system_fingerprint", facts_.fingerprint}};
  }

  std::string chunk(size_t index, Json delta, Json logprobs, Json reason) const {
    Json out = frame("chat.completion.chunk");
    out["choices"] = Json::array({{{"index", index},
                                   {"delta", std::move(delta)},
                                   {"logprobs", std::move(logprobs)},
                                   {"finish_reason", std::move(reason)}}});
    if (include_usage_) out["usage"] = nullptr;
    return event(line_of(out));
  }

  // The calls and the reason.
  std::string finish(size_t index, infer::Finish finish) {
    Choice& choice = choices_[index];
    const std::vector<ToolCall>& calls = choice.tools.calls();
    choice.reason = calls.empty() ? reason_of(finish) : "tool_calls";
    std::string events;
    for (size_t i = 0; i < calls.size(); ++i) {
      const Json named = {{"index", i},
                          {"id", make_id("call_")},
                          {"type", "function"},
                          {"function", {{"name", calls[i].name}, {"arguments", ""}}}};
      const Json filled = {{"index", i}, {"function", {{"arguments", calls[i].arguments}}}};
      events += chunk(index, {{"tool_calls", Json::array({named})}}, nullptr, nullptr);
      events += chunk(index, {{"tool_calls", Json::array({filled})}}, nullptr, nullptr);
    }
    return events + chunk(index, Json::object(), nullptr, choice.reason);
  }

  Json logprobs_of(const std::vector<TokenFact>& facts) const {
    const auto describe = [&](int32_t id, float logprob) {
      return Json{{"token", token_string(*facts_.tokenizer, id)},
                  {"logprob", logprob},
                  {"bytes", bytes_of(facts_.tokenizer->token_bytes(id))}};
    };
    Json list = Json::array();
    for (const TokenFact& fact : facts) {
      Json token = describe(fact.choice.id, fact.choice.logprob);
      token["top_logprobs"] = Json::array();
      for (const infer::Likely& likely : fact.choice.top) {
        token["top_logprobs"].push_back(describe(likely.id, likely.logprob));
      }
      list.push_back(std::move(token));
    }
    return list;
  }

  ReplyFacts facts_;
  bool include_usage_;
  bool logprobs_;
  std::vector<Choice> choices_;
};

}  // namespace

std::unique_ptr<Reply> chat_reply(const ChatRequest& request, ToolForm form, ReplyFacts facts) {
  return std::make_unique<ChatReply>(request, form, std::move(facts));
}

}  // namespace ingot::server
