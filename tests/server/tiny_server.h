// A server on a loopback port with a tiny random llama and a byte-level tokenizer, and a client for it.
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

// Adapters are created when they are added. "missing", "broken", "huge", "strange" and "changing" fail to be added;
// "gone", "rotten" and "busy" are added and then fail to be read; the output of "boundless" is not finite. Error
// messages name files.
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

// Blocks the engine's thread: it waits at the gate until a test opens it, for at most a minute.
struct Gate {
  bool reached = false;
  bool open = false;
};

// Masks that allow one text (the last one of a choice, {} for any JSON object) and then the end. A schema, grammar or
// expression that contains "refuse" is refused, and one with "huge" is too large. With "break" the mask fails after 20
// tokens, with "exceed" it exceeds a limit there, and with "wait" it waits at the gate after the first token.
class FakeMasks : public MaskFactory {
 public:
  explicit FakeMasks(const text::Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  std::shared_ptr<infer::TokenMask> mask(const Constraint& constraint) override;

  std::string text = R"({"name":"f","arguments":{"x":1}})";
  std::function<void()> before;               // called for each mask of a schema
  Guarded<std::vector<std::string>> schemas;  // texts of the requested constraints
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
  std::shared_ptr<const FileWatch> files;  // passed to Service
  bool grammars = false;                   // GrammarMasks instead of FakeMasks
  TinySettings();
};

class TinyServer {
 public:
  explicit TinyServer(TinySettings settings = {});

  // Sends one request on a new connection.
  Answer ask(const std::string& method, const std::string& target, const std::string& body = "",
             const std::string& headers = "");
  // Sends a JSON body and returns the JSON answer, which must have this status.
  Json post(const std::string& target, const Json& body, int status = 200);
  Json get(const std::string& target, int status = 200);
  // The events of a streamed answer without the final [DONE].
  std::vector<Json> stream(const std::string& target, const Json& body);

  // The ids that greedy decoding gives after these ids, up to the end token.
  std::vector<int32_t> greedy(const std::vector<int32_t>& prompt, int64_t count, const nn::Adapter* adapter = nullptr);
  std::vector<int32_t> chat_prompt(const std::string& words) const;
  std::string text_of(const std::vector<int32_t>& ids) const { return tokenizer->decode(ids, true); }
  // The lines of the access log; waits for at least this many.
  std::vector<Json> log_lines(size_t least);

  infer::SmallModel model{"a"};
  std::unique_ptr<text::Tokenizer> tokenizer;
  text::ChatTemplate chat;
  ServedModel served;
  FakeAdapters adapters;
  FakeMasks masks;
  std::unique_ptr<GrammarMasks> grammar_masks;  // when TinySettings::grammars is set
  Guarded<std::vector<std::string>> lines;
  std::unique_ptr<infer::Service> service;
  std::unique_ptr<Api> api;
  std::unique_ptr<HttpServer> http;
};

constexpr const char* secret = "correct-horse-battery";
constexpr const char* plain_chat =
    R"({"model": "org/tiny", "max_tokens": 2, "temperature": 0, "messages": [{"role": "user", "content": "x"}]})";

// The Authorization header with this key.
std::string bearer(const std::string& key);

// Expects an error in OpenAI's form with all its members.
void expect_error(const Answer& answer, int status, const std::string& code);

}  // namespace ingot::server
