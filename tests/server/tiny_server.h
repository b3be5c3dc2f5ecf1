// A server on a loopback port with a tiny random llama and a tokenizer of single bytes, and a client for it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "infer/service.h"
#include "server/api.h"
#include "server/grammar_masks.h"
#include "server/http_server.h"
#include "tests/infer/small_model.h"
#include "tests/server/raw_client.h"
#include "text/chat_template.h"

namespace ingot::server {

using Json = nlohmann::ordered_json;

// Adapters that are made when they are added. "missing", "broken", "huge", "strange" and "changing" cannot be; "gone",
// "rotten" and "busy" can, and then cannot be read any more; what "boundless" computes is not finite. Errors name
// files.
class FakeAdapters : public AdapterList {
 public:
  explicit FakeAdapters(infer::SmallModel& model) : model_(model) {}
  std::vector<AdapterEntry> entries() const override;
  bool has(const std::string& name) const override;
  std::shared_ptr<const infer::HostAdapter> get(const std::string& name) override;
  void add(const std::string& name) override;
  void remove(const std::string& name) override;

 private:
  infer::SmallModel& model_;
  mutable Guarded<std::map<std::string, std::shared_ptr<const infer::HostAdapter>>> made_;
};

// What holds an engine's thread: it waits at the gate until a test opens it, for a minute at most.
struct Gate {
  bool reached = false;
  bool open = false;
};

// Masks that allow one text (of a choice its last one, of any JSON object {}) and then the end; a schema, grammar or
// expression with "refuse" in it is refused, one with "huge" is too large, that of one with "break" fails behind 20
// tokens, that of one with "exceed" passes a limit there, that of one with "wait" waits at the gate behind the first.
class FakeMasks : public MaskFactory {
 public:
  explicit FakeMasks(const text::Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  std::shared_ptr<infer::TokenMask> mask(const Constraint& constraint) override;

  std::string text = R"({"name":"f","arguments":{"x":1}})";
  std::function<void()> before;               // each that is made of a schema
  Guarded<std::vector<std::string>> schemas;  // texts of constraints that were asked for
  Guarded<std::vector<Constraint::Kind>> kinds;
  Guarded<Gate> gate;

 private:
  const text::Tokenizer& tokenizer_;
};

struct TinySettings {
  ApiSettings api;
  HttpSettings http;
  infer::EngineSettings engine;
  int64_t queue = 10000;
  int64_t share = 0;
  std::shared_ptr<const FileWatch> files;  // Service's
  bool grammars = false;                   // masks of grammars, not FakeMasks
  TinySettings();
};

class TinyServer {
 public:
  explicit TinyServer(TinySettings settings = {});

  // One request on a connection of its own.
  Answer ask(const std::string& method, const std::string& target, const std::string& body = "",
             const std::string& headers = "");
  // A body that is JSON, and its answer, which must have this status.
  Json post(const std::string& target, const Json& body, int status = 200);
  Json get(const std::string& target, int status = 200);
  // The events of a streamed answer; the last is [DONE] and is left out.
  std::vector<Json> stream(const std::string& target, const Json& body);

  // What the model says greedily behind these ids, as ids, up to its end token.
  std::vector<int32_t> greedy(const std::vector<int32_t>& prompt, int64_t count, const nn::Adapter* adapter = nullptr);
  std::vector<int32_t> chat_prompt(const std::string& words) const;
  std::string text_of(const std::vector<int32_t>& ids) const { return tokenizer->decode(ids, true); }
  // Lines of the access log so far; waits for at least so many.
  std::vector<Json> log_lines(size_t least);

  infer::SmallModel model{"a"};
  std::unique_ptr<text::Tokenizer> tokenizer;
  text::ChatTemplate chat;
  ServedModel served;
  FakeAdapters adapters;
  FakeMasks masks;
  std::unique_ptr<GrammarMasks> grammar_masks;  // where they are asked for
  Guarded<std::vector<std::string>> lines;
  std::unique_ptr<infer::Service> service;
  std::unique_ptr<Api> api;
  std::unique_ptr<HttpServer> http;
};

constexpr const char* secret = "correct-horse-battery";
constexpr const char* plain_chat =
    R"({"model": "org/tiny", "max_tokens": 2, "temperature": 0, "messages": [{"role": "user", "content": "x"}]})";

// The header field with this key.
std::string bearer(const std::string& key);

// An error in OpenAI's form with all its members.
void expect_error(const Answer& answer, int status, const std::string& code);

}  // namespace ingot::server
