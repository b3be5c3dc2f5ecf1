#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "server/ids.h"
#include "server/reply_json.h"

namespace ingot::server {

namespace {

using Json = nlohmann::ordered_json;

class ChatReply : public Reply {
 public:
  ChatReply(const ChatRequest& request, ToolForm form, ReplyInfo info)
      : info_(std::move(info)),
        stream_(request.stream),
        include_usage_(request.include_usage),
        logprobs_(request.logprobs) {
    for (int64_t i = 0; i < request.n; ++i) choices_.emplace_back(tool_reader(request, form));
  }

  std::string begin() override {
    std::string events;
    for (size_t i = 0; i < choices_.size(); ++i) {
      events += chunk(i, {{"role", "assistant"}, {"content", ""}}, nullptr, nullptr);
    }
    return events;
  }

  std::string push(std::vector<OutputDelta> pieces) override {
    std::string events;
    for (OutputDelta& piece : pieces) {
      Choice& choice = choices_[piece.choice];
      std::string text = choice.tools.push(piece.text);
      if (piece.finish) text += choice.tools.finish();
      if (piece.finish) {
        const bool called = !choice.tools.calls().empty();
        // A call that was cut, even by a stop string, must not be mistaken for a complete one.
        choice.reason = choice.tools.cut() ? "length" : called ? "tool_calls" : finish_reason(*piece.finish);
      }
      if (!stream_) {
        choice.content += text;
        std::move(piece.logprobs.begin(), piece.logprobs.end(), std::back_inserter(choice.logprobs));
        continue;
      }
      if (!text.empty() || !piece.logprobs.empty()) events += text_event(piece.choice, text, piece.logprobs);
      if (piece.finish) events += finish(piece.choice);
    }
    return events;
  }

  std::string end(const Usage& usage) override {
    return last_events(frame_of(info_, "chat.completion.chunk"), include_usage_ ? &usage : nullptr);
  }

  std::string body(const Outputs&, const Usage& usage) override {
    std::vector<std::string> list;
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
      list.push_back(fmt::format(R"({{"index":{},"message":{},"logprobs":{},"finish_reason":"{}"}})", i,
                                 line_of(message), whole_logprobs(choice.logprobs), choice.reason));
    }
    Json whole = frame_of(info_, "chat.completion");
    whole["service_tier"] = nullptr;
    return complete_reply(whole, list, usage);
  }

 private:
  struct Choice {
    explicit Choice(ToolReader reader) : tools(std::move(reader)) {}
    ToolReader tools;
    // Only without streaming.
    std::string content;
    std::vector<TokenLogprobEntry> logprobs;
    std::string reason;
  };

  std::string chunk(size_t index, Json delta, Json logprobs, Json reason) const {
    Json out = frame_of(info_, "chat.completion.chunk");
    out["choices"] = Json::array({{{"index", index},
                                   {"delta", std::move(delta)},
                                   {"logprobs", std::move(logprobs)},
                                   {"finish_reason", std::move(reason)}}});
    if (include_usage_) out["usage"] = nullptr;
    return event(line_of(out));
  }

  std::string text_event(size_t index, const std::string& text, const std::vector<TokenLogprobEntry>& entries) const {
    Json logprobs;
    if (logprobs_) {
      logprobs = {{"content", Json::array()}, {"refusal", nullptr}};
      for (const TokenLogprobEntry& entry : entries)
        logprobs["content"].push_back(logprob_json(*info_.tokenizer, entry));
    }
    return chunk(index, {{"content", text}}, std::move(logprobs), nullptr);
  }

  // The events of the tool calls and of the finish reason.
  std::string finish(size_t index) const {
    const Choice& choice = choices_[index];
    const std::vector<ToolCall>& calls = choice.tools.calls();
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

  std::string whole_logprobs(const std::vector<TokenLogprobEntry>& entries) const {
    if (!logprobs_) return "null";
    return fmt::format(R"({{"content":{},"refusal":null}})", logprobs_text(*info_.tokenizer, entries));
  }

  ReplyInfo info_;
  bool stream_;
  bool include_usage_;
  bool logprobs_;
  std::vector<Choice> choices_;
};

}  // namespace

std::unique_ptr<Reply> chat_reply(const ChatRequest& request, ToolForm form, ReplyInfo info) {
  return std::make_unique<ChatReply>(request, form, std::move(info));
}

}  // namespace ingot::server
