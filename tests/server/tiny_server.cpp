#include "tests/server/tiny_server.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/error.h"
#include "tests/text/tiny_vocabulary.h"

namespace ingot::server {

namespace {

constexpr const char* chat_text =
    "{% if tools %}{{ tools | tojson }}{% endif %}{% for message in messages %}{{ '<|im_start|>' + message['role'] + "
    "'\\n' + message['content'] + '<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ "
    "'<|im_start|>assistant\\n' }}{{ opening }}{% endif %}";

void wait_at(Guarded<Gate>& gate) {
  auto held = gate.lock();
  held->reached = true;
  gate.notify_all();
  EXPECT_TRUE(held.wait_for(60, [](const Gate& g) { return g.open; }));
}

// Allows one text, one character per token. It may fail after 20 of them, and waits at the gate, if there is one, after
// the first.
class ScriptMask : public infer::TokenMask {
 public:
  explicit ScriptMask(std::vector<int32_t> script, std::optional<ErrorKind> failure = {}, Guarded<Gate>* gate = nullptr)
      : script_(std::move(script)), failure_(failure), gate_(gate) {}
  void fill(std::span<uint32_t> bits) override {
    if (gate_ && at_ > 0) wait_at(*gate_);
    std::fill(bits.begin(), bits.end(), 0);
    const auto id = static_cast<uint32_t>(finished() ? 2 : script_[at_]);
    bits[id / 32] |= 1U << id % 32;
  }
  void accept(int32_t) override {
    if (at_++ == 20 && failure_) throw_error(*failure_, "a mask needs more than 9 steps");
  }
  void rollback(int64_t tokens) override { at_ -= static_cast<size_t>(tokens); }
  bool finished() const override { return at_ >= script_.size(); }

 private:
  std::vector<int32_t> script_;
  std::optional<ErrorKind> failure_;
  Guarded<Gate>* gate_;
  size_t at_ = 0;
};

}  // namespace

std::vector<AdapterEntry> FakeAdapters::entries() const {
  std::vector<AdapterEntry> entries;
  for (const auto& [name, adapter] : *made_.lock()) entries.push_back({name, 7, adapter->rank, true});
  return entries;
}

bool FakeAdapters::has(const std::string& name) const { return made_.lock()->contains(name); }

std::shared_ptr<const infer::HostAdapter> FakeAdapters::get(const std::string& name) {
  if (name == "gone") throw_error(ErrorKind::not_found, "/secret/folder/gone is not there");
  if (name == "rotten") throw_error(ErrorKind::corrupt, "/secret/folder/rotten/adapter_model.safetensors is cut");
  if (name == "busy") throw_error(ErrorKind::unavailable, "/secret/folder/busy does not fit beside others");
  return made_.lock()->at(name);
}

void FakeAdapters::add(const std::string& name) {
  if (name == "missing") throw_error(ErrorKind::not_found, "/secret/folder/{} is not there", name);
  if (name == "broken") throw_error(ErrorKind::corrupt, "/secret/folder/broken/adapter_model.safetensors is cut");
  if (name == "huge") throw_error(ErrorKind::resource, "/secret/folder/huge takes 9 GiB");
  if (name == "strange") throw_error(ErrorKind::unsupported, "/secret/folder/strange/adapter_config.json: DoRA");
  if (name == "changing") throw_error(ErrorKind::unavailable, "/secret/folder/changing is being written");
  std::shared_ptr<infer::RandomAdapter> random = model_.adapter(4, 3);
  if (name == "boundless") random->adapter.factor = std::numeric_limits<float>::infinity();
  (*made_.lock())[name] = std::make_shared<infer::HostAdapter>(name, random->adapter, random);
}

void FakeAdapters::remove(const std::string& name) { made_.lock()->erase(name); }

std::shared_ptr<infer::TokenMask> FakeMasks::mask(const Constraint& constraint) {
  kinds.lock()->push_back(constraint.kind);
  if (constraint.kind == Constraint::Kind::json_object) {
    return std::make_shared<ScriptMask>(tokenizer_.encode("{}"));
  }
  if (constraint.kind == Constraint::Kind::choice) {
    return std::make_shared<ScriptMask>(tokenizer_.encode(constraint.choices.back()));
  }
  const std::string_view schema = constraint.text;
  if (before) before();
  schemas.lock()->emplace_back(schema);
  if (schema.find("refuse") != std::string_view::npos) {
    throw_error(ErrorKind::unsupported, "the keyword 'refuse' at /properties is not supported");
  }
  if (schema.find("huge") != std::string_view::npos) {
    throw_error(ErrorKind::resource, "the schema needs more than 9 terms");
  }
  std::optional<ErrorKind> failure;
  if (schema.find("break") != std::string_view::npos) failure = ErrorKind::internal;
  if (schema.find("exceed") != std::string_view::npos) failure = ErrorKind::resource;
  const bool waits = schema.find("wait") != std::string_view::npos;
  return std::make_shared<ScriptMask>(tokenizer_.encode(text), failure, waits ? &gate : nullptr);
}

TinySettings::TinySettings() {
  engine.activation = DType::f32;
  engine.sequences = 8;
  engine.batch_tokens = 64;
  engine.adapter_rank = 8;
}

TinyServer::TinyServer(TinySettings settings)
    : tokenizer(text::Tokenizer::from_vocabulary(text::latin_vocabulary())),
      chat(chat_text, "tiny"),
      adapters(model),
      masks(*tokenizer) {
  served.id = "org/tiny";
  served.created = 5;
  served.tokenizer = tokenizer.get();
  served.chat = &chat;
  served.eos_text = "<|im_end|>";
  served.eos = {2};
  served.context = model.spec().context;
  served.vocab = model.spec().vocab;
  served.longest_token = longest_token_of(*tokenizer);
  served.hidden = model.spec().hidden;
  served.fingerprint = "fp_tiny";
  settings.api.access_log = [this](std::string_view line) {
    lines.lock()->emplace_back(line);
    lines.notify_all();
  };
  settings.api.http_counts = [this] { return http->counts(); };
  service = std::make_unique<infer::Service>(
      std::make_unique<infer::Engine>(model.device, model.registry, model.threads, *model.model, settings.engine),
      settings.queue, settings.share, settings.files);
  if (settings.grammars) {
    const auto vocabulary = std::make_shared<const grammar::Vocabulary>(*tokenizer, served.eos);
    grammar_masks = std::make_unique<GrammarMasks>(vocabulary);
  }
  MaskFactory* factory = &masks;
  if (grammar_masks) factory = grammar_masks.get();
  api = std::make_unique<Api>(std::move(settings.api), served, *service, &adapters, factory);
  http = std::make_unique<HttpServer>(settings.http, *api);
}

Answer TinyServer::ask(const std::string& method, const std::string& target, const std::string& body,
                       const std::string& headers) {
  RawClient client(http->port());
  std::string request = method + " " + target + " HTTP/1.1\r\nHost: localhost\r\n" + headers;
  if (!body.empty()) {
    request += "Content-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) + "\r\n";
  }
  client.send(request + "\r\n" + body);
  return client.answer();
}

Json TinyServer::post(const std::string& target, const Json& body, int status) {
  const Answer answer = ask("POST", target, body.dump());
  EXPECT_EQ(answer.status, status) << answer.body;
  return Json::parse(answer.body);
}

Json TinyServer::get(const std::string& target, int status) {
  const Answer answer = ask("GET", target);
  EXPECT_EQ(answer.status, status) << answer.body;
  return Json::parse(answer.body);
}

std::vector<Json> TinyServer::stream(const std::string& target, const Json& body) {
  const Answer answer = ask("POST", target, body.dump());
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(answer.headers.at("content-type"), "text/event-stream");
  EXPECT_TRUE(answer.whole);
  std::vector<Json> events;
  std::string_view rest = answer.body;
  while (!rest.empty()) {
    const size_t end = rest.find("\n\n");
    const std::string_view event = rest.substr(0, end);
    EXPECT_TRUE(event.starts_with("data: ")) << event;
    rest.remove_prefix(end + 2);
    if (event == "data: [DONE]") {
      EXPECT_TRUE(rest.empty());
      return events;
    }
    events.push_back(Json::parse(event.substr(6)));
  }
  ADD_FAILURE() << "no [DONE]";
  return events;
}

std::vector<int32_t> TinyServer::greedy(const std::vector<int32_t>& prompt, int64_t count, const nn::Adapter* adapter) {
  std::vector<int32_t> ids = infer::ids_of(model.greedy(prompt, count, adapter));
  ids.erase(std::find(ids.begin(), ids.end(), 2), ids.end());
  return ids;
}

std::vector<int32_t> TinyServer::chat_prompt(const std::string& words) const {
  return tokenizer->encode("<|im_start|>user\n" + words + "<|im_end|>\n<|im_start|>assistant\n");
}

std::vector<Json> TinyServer::log_lines(size_t least) {
  auto held = lines.lock();
  EXPECT_TRUE(held.wait_for(60, [&](const auto& all) { return all.size() >= least; }));
  std::vector<Json> parsed;
  for (const std::string& line : *held) parsed.push_back(Json::parse(line));
  return parsed;
}

std::string bearer(const std::string& key) { return "Authorization: Bearer " + key + "\r\n"; }

void expect_error(const Answer& answer, int status, const std::string& code) {
  EXPECT_EQ(answer.status, status) << answer.body;
  const Json body = Json::parse(answer.body, nullptr, false);
  ASSERT_FALSE(body.is_discarded()) << answer.body;
  for (const char* key : {"message", "type", "param", "code"}) EXPECT_TRUE(body["error"].contains(key)) << key;
  EXPECT_EQ(body["error"]["code"], code) << answer.body;
  EXPECT_TRUE(answer.headers.contains("x-request-id"));
}

}  // namespace ingot::server
