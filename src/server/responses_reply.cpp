// Answers of /v1/responses: output items, and stream events that report their progress.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <ctime>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/json.h"
#include "server/ids.h"
#include "server/reply_json.h"

namespace ingot::server {

namespace {

using Json = nlohmann::ordered_json;

class ResponsesReply : public Reply {
 public:
  ResponsesReply(const ResponsesRequest& request, ToolForm form, ReplyInfo info)
      : info_(std::move(info)),
        request_echo_(parse_lenient_ordered_json(request.request_echo)),
        stream_(request.stream),
        logprobs_(request.logprobs),
        tools_(tool_reader(request, form)) {}

  std::string begin() override {
    const std::string response = response_text("in_progress", {}, nullptr);
    return event_with("response.created", "response", response) +
           event_with("response.in_progress", "response", response);
  }

  std::string push(std::vector<OutputDelta> pieces) override {
    std::string events;
    for (OutputDelta& piece : pieces) {
      std::string text = tools_.push(piece.text);
      if (piece.finish) text += tools_.finish();
      if (logprobs_) std::move(piece.logprobs.begin(), piece.logprobs.end(), std::back_inserter(pending_logprobs_));
      if (!text.empty()) events += add_text(text);
      if (!piece.finish) continue;
      is_cut_ = tools_.cut() || *piece.finish != infer::FinishReason::stop;
      // An output without text and without calls is an empty message. Log-probabilities of tokens without text so far
      // go to the open message, if there is one.
      const bool rest = is_open_ && !pending_logprobs_.empty();
      if (rest || (tools_.calls().empty() && !is_open_)) events += add_text("");
      if (is_open_) events += end_message();
      for (const ToolCall& call : tools_.calls()) events += add_call(call);
    }
    return stream_ ? events : std::string();
  }

  std::string end(const Usage& usage) override {
    return event_with(is_cut_ ? "response.incomplete" : "response.completed", "response", whole(usage));
  }

  std::string body(const Outputs&, const Usage& usage) override { return whole(usage); }

  std::string failure(const std::string& error) override {
    const Json inner = parse_lenient_ordered_json(error)["error"];
    failure_ = {{"code", "server_error"}, {"message", inner["message"]}};
    return event_with("response.failed", "response", response_text("failed", items_, nullptr));
  }

 private:
  // An event whose last member is given as JSON text.
  std::string event_with(const char* type, const char* member, const std::string& text,
                         const Json& fields = Json::object()) {
    Json head = {{"type", type}, {"sequence_number", sequence_++}};
    head.update(fields);
    std::string line = line_of(head);
    line.pop_back();
    return fmt::format("event: {}\ndata: {},\"{}\":{}}}\n\n", type, line, member, text);
  }

  // The members of events about an item: "output_index" and others.
  Json item_fields(const std::string& id, bool in_content = true) const {
    Json fields = {{"item_id", id}, {"output_index", items_.size()}};
    if (in_content) fields["content_index"] = 0;
    return fields;
  }
  Json item_place() const { return {{"output_index", items_.size()}}; }

  std::string part_text(const std::string& text, const std::vector<TokenLogprobEntry>& entries) const {
    return fmt::format(R"({{"type":"output_text","text":{},"annotations":[],"logprobs":{}}})", line_of(text),
                       logprobs_text(*info_.tokenizer, entries));
  }
  std::string message_text(const char* status, const std::string& content) const {
    return fmt::format(R"({{"id":"{}","type":"message","status":"{}","role":"assistant","content":[{}]}})", message_id_,
                       status, content);
  }

  std::string add_text(const std::string& text) {
    const std::vector<TokenLogprobEntry> entries = std::exchange(pending_logprobs_, {});
    std::string events;
    if (!is_open_) {
      is_open_ = true;
      message_id_ = make_id("msg_");
      events += event_with("response.output_item.added", "item", message_text("in_progress", ""), item_place());
      events += event_with("response.content_part.added", "part", part_text("", {}), item_fields(message_id_));
    }
    if (stream_ && (!text.empty() || !entries.empty())) {
      Json where = item_fields(message_id_);
      where["delta"] = text;
      events += event_with("response.output_text.delta", "logprobs", logprobs_text(*info_.tokenizer, entries), where);
    }
    text_ += text;
    message_logprobs_.insert(message_logprobs_.end(), entries.begin(), entries.end());
    return events;
  }

  // Ends the message. It is complete, unless the output was cut in it; calls may follow.
  std::string end_message() {
    const bool is_cut = is_cut_ && tools_.calls().empty();
    const std::string part = part_text(text_, message_logprobs_);
    const std::string item = message_text(is_cut ? "incomplete" : "completed", part);
    std::string events;
    if (stream_) {
      Json where = item_fields(message_id_);
      where["text"] = text_;
      events += event_with("response.output_text.done", "logprobs", logprobs_text(*info_.tokenizer, message_logprobs_),
                           where);
      events += event_with("response.content_part.done", "part", part, item_fields(message_id_));
      events += event_with("response.output_item.done", "item", item, item_place());
    }
    items_.push_back(item);
    is_open_ = false;
    return events;
  }

  std::string add_call(const ToolCall& call) {
    const std::string id = make_id("fc_");
    Json item = {
        {"id", id},          {"type", "function_call"}, {"status", "in_progress"}, {"call_id", make_id("call_")},
        {"name", call.name}, {"arguments", ""}};
    std::string events;
    if (stream_) {
      events += event_with("response.output_item.added", "item", line_of(item), item_place());
      events += event_with("response.function_call_arguments.delta", "delta", line_of(call.arguments),
                           item_fields(id, false));
      events += event_with("response.function_call_arguments.done", "arguments", line_of(call.arguments),
                           item_fields(id, false));
    }
    item["arguments"] = call.arguments;
    item["status"] = tools_.cut() ? "incomplete" : "completed";
    if (stream_) events += event_with("response.output_item.done", "item", line_of(item), item_place());
    items_.push_back(line_of(item));
    return events;
  }

  std::string whole(const Usage& usage) {
    const Json counts = {{"input_tokens", usage.prompt},
                         {"input_tokens_details", {{"cached_tokens", usage.cached}, {"cache_write_tokens", 0}}},
                         {"output_tokens", usage.completion},
                         {"output_tokens_details", {{"reasoning_tokens", 0}}},
                         {"total_tokens", usage.prompt + usage.completion}};
    return response_text(is_cut_ ? "incomplete" : "completed", items_, counts);
  }

  // The response object. `items`: its output items, as JSON text.
  std::string response_text(const std::string& status, const std::vector<std::string>& items, const Json& usage) const {
    Json frame = {{"id", info_.id},
                  {"object", "response"},
                  {"created_at", info_.created},
                  {"status", status},
                  {"completed_at", nullptr},
                  {"background", false},
                  {"error", failure_},
                  {"incomplete_details", nullptr},
                  {"model", info_.model},
                  {"previous_response_id", nullptr},
                  {"reasoning", {{"effort", nullptr}, {"summary", nullptr}}},
                  {"service_tier", "default"},
                  {"store", false}};
    if (status == "completed") frame["completed_at"] = static_cast<int64_t>(std::time(nullptr));
    if (status == "incomplete") frame["incomplete_details"] = {{"reason", "max_output_tokens"}};
    frame.update(request_echo_);
    std::string text = line_of(frame);
    text.pop_back();
    return fmt::format(R"({},"output":[{}],"usage":{}}})", text, fmt::join(items, ","), line_of(usage));
  }

  ReplyInfo info_;
  Json request_echo_;
  bool stream_;
  bool logprobs_;
  ToolReader tools_;
  int64_t sequence_ = 0;
  std::string message_id_;  // of the output's message
  bool is_open_ = false;    // the message has started and not ended
  bool is_cut_ = false;
  std::string text_;                                 // of the message
  std::vector<TokenLogprobEntry> message_logprobs_;  // of the message
  std::vector<TokenLogprobEntry> pending_logprobs_;  // of tokens whose text has not been returned yet
  std::vector<std::string> items_;                   // completed items, as JSON text
  Json failure_;
};

}  // namespace

std::unique_ptr<Reply> responses_reply(const ResponsesRequest& request, ToolForm form, ReplyInfo info) {
  return std::make_unique<ResponsesReply>(request, form, std::move(info));
}

}  // namespace ingot::server
