// Formats the answers of generating routes: from outputs to JSON, whole or as server-sent events.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "server/outputs.h"
#include "server/prompts.h"
#include "server/requests.h"
#include "server/tool_calls.h"

namespace ingot::server {

struct ReplyInfo {
  std::string id;     // "chatcmpl-...", "cmpl-..." or "resp_..."
  std::string model;  // as requested
  std::string fingerprint;
  int64_t created = 0;
  const text::Tokenizer* tokenizer = nullptr;
};

struct Usage {
  int64_t prompt = 0;
  int64_t completion = 0;
  int64_t cached = 0;
};

// With streaming, `push` returns events; without, it collects and `body` returns the whole answer. One thread.
class Reply {
 public:
  virtual ~Reply() = default;
  virtual std::string begin() = 0;  // events before the first piece
  virtual std::string push(std::vector<OutputDelta> pieces) = 0;
  virtual std::string end(const Usage& usage) = 0;  // events after the last piece, with [DONE] if the route sends it
  virtual std::string body(const Outputs& outputs, const Usage& usage) = 0;
  // The event that ends a stream prematurely. `error`: {"error": {...}}.
  virtual std::string failure(const std::string& error);
};

std::unique_ptr<Reply> chat_reply(const ChatRequest& request, ToolForm form, ReplyInfo info);
std::unique_ptr<Reply> responses_reply(const ResponsesRequest& request, ToolForm form, ReplyInfo info);
// `prompts`: the prompts to repeat with `echo`; empty without it.
std::unique_ptr<Reply> completion_reply(const CompletionRequest& request, std::vector<EchoedPrompt> prompts,
                                        ReplyInfo info);

}  // namespace ingot::server
