// ingot serve: the OpenAI-compatible server.
#include <fmt/format.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <thread>

#include "app/grammar_masks.h"
#include "app/interrupt.h"
#include "app/served_adapters.h"
#include "app/session.h"
#include "base/append_file.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/signals.h"
#include "infer/service.h"
#include "server/api.h"
#include "server/http_server.h"
#include "server/keys.h"
#include "text/chat_template.h"

namespace ingot::app {

namespace {

// A connection is a descriptor, also one that is refused: as many as the system lets this process have.
void allow_descriptors(const Log& log, int64_t connections) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur < static_cast<rlim_t>(connections) + 64) {
    log.warning("the system allows {} open files; with more connections than that, clients will wait", limit.rlim_cur);
  }
}

class Serve : public Command {
 public:
  const char* name() const override { return "serve"; }
  const char* summary() const override { return "answer OpenAI's HTTP API with a model"; }

  void declare(Arguments& arguments) override {
    options_.declare(arguments);
    arguments.option("name", name_, "what clients call the model; its folder's or file's name without it");
    arguments.option("host", http_.host, "the address to listen on; another than this machine's needs --api-key-file");
    arguments.option("port", port_, "the port to listen on; 0: any that is free");
    arguments.option("api-key-file", keys_,
                     "keys, one a line: the key or sha256:HEX of it, then optionally a name, requests=N (a minute), "
                     "concurrent=N and infer (may not change adapters or ask for a priority above 0)");
    arguments.option("tls-cert", http_.certificate, "a PEM file with the certificate and its chain: serves HTTPS");
    arguments.option("tls-key", http_.key, "a PEM file with its key");
    arguments.option("adapters", adapters_,
                     "a folder of folders with LoRA adapters in PEFT's layout, each a model by its name");
    arguments.option("adapter-rank", adapter_rank_, "the largest rank that one of them may have; 64 without it");
    arguments.option("adapter-slots", adapter_slots_,
                     "most of them that are computed with at once, each with memory of a GPU for that rank; as many as "
                     "--sequences without it");
    arguments.option("adapter-mib", adapter_mib_,
                     "most memory of the host for them, others are read again when asked for; 4096 without it");
    arguments.option("sequences", sequences_, "most requests in one batch");
    arguments.option("context", context_, "most tokens of prompt and answer; the model's without it");
    arguments.option("batch-tokens", batch_tokens_, "most tokens computed in a step");
    arguments.option("pages", pages_, "pages of 16 tokens of the KV cache; without it enough for every sequence");
    arguments.flag("no-prefix-cache", no_prefix_cache_,
                   "compute every prompt anew, also where it begins as another did");
    arguments.option("guesses", guesses_,
                     "most tokens a step that are guessed from earlier in the text and checked; 0: none");
    arguments.option("queue", queue_, "most requests that wait; more are refused with 429");
    arguments.option("queue-per-key", queue_per_key_,
                     "of them, of one key; half of them without it where there are several keys");
    arguments.option("connections", connections_, "most connections at a time");
    arguments.option("connections-per-address", per_address_, "of them, from one address");
    arguments.option("body-bytes", body_bytes_, "most bytes of a request's body");
    arguments.option("bodies-bytes", bodies_bytes_,
                     "most bytes of all bodies that are being read at a time, those beyond the first 65536 of each; "
                     "more are refused with 503, bodies up to that size never");
    arguments.option("drain-seconds", drain_s_, "how long requests may run on after SIGTERM");
    arguments.option("access-log", access_log_, "a file for one JSON line a request; standard error without it");
    arguments.example(
        "ingot serve --model SmolLM2-135M-Instruct --port 8000\n"
        "  curl http://127.0.0.1:8000/v1/models\n"
        "  (printf 'sha256:%s alice requests=600\\n' \"$(printf %s \"$KEY\" | sha256sum | cut -d' ' -f1)\" adds a key "
        "to the file of --api-key-file)");
  }

  int run(const Output&) override {
    const StopSignal stop(&exit_interrupted);
    const Log log(LogLevel::info);
    check();
    server::ApiSettings api_settings = read_api_settings();
    allow_descriptors(log, connections_ + http_.limits.refusals);
    Session session(options_);
    if (stop.requested()) return 130;
    const checkpoint::TextAssets& assets = session.text();
    std::optional<text::ChatTemplate> chat;
    if (assets.chat_template) chat.emplace(*assets.chat_template, session.source.name + ": chat template");
    const infer::EngineSettings engine = engine_settings(session);
    infer::Service service(std::make_unique<infer::Engine>(*session.runtime.device, session.runtime.registry,
                                                           *session.runtime.threads, *session.model, engine),
                           queue_, share_of_queue(api_settings.keys));
    const server::ServedModel model = served(session, chat, engine.context);
    Guarded<const server::HttpServer*> counted{nullptr};
    api_settings.http_counts = [&counted] {
      const auto held = counted.lock();
      return *held ? (*held)->counts() : server::HttpCounts{};
    };
    open_access_log(api_settings, log);
    GrammarMasks masks(std::make_shared<const grammar::Vocabulary>(*model.tokenizer, model.eos));
    std::optional<infer::AdapterStore> store;
    std::optional<ServedAdapters> adapters;
    if (adapters_) {
      store.emplace(session.loaded.spec,
                    infer::AdapterStoreSettings{.root = *adapters_,
                                                .activation = session.activation,
                                                .budget = static_cast<size_t>(adapter_mib_.value_or(4096)) << 20,
                                                .most_rank = most_rank()});
      adapters.emplace(*store);
      log.info("{} adapters below {}", store->counts().registered, *adapters_);
    }
    server::Api api(std::move(api_settings), model, service, adapters ? &*adapters : nullptr, &masks);
    const auto http = std::make_unique<server::HttpServer>(http_, api);
    *counted.lock() = http.get();
    const std::string url =
        fmt::format("{}://{}:{}", http_.certificate.empty() ? "http" : "https",
                    http_.host.find(':') == std::string::npos ? http_.host : "[" + http_.host + "]", http->port());
    log.info("{} answers at {}{}", model.id, url, keys_ ? "" : " (this machine only: there is no --api-key-file)");
    return wait(stop, log, api, service, *http);
  }

 private:
  void check() const {
    if (!keys_ && !server::is_loopback(http_.host)) {
      throw_hint(ErrorKind::usage, "give --api-key-file, or leave --host out",
                 "--host {} without keys would let anybody in", http_.host);
    }
    if (options_.adapter) {
      throw_hint(ErrorKind::usage, "put its folder below another and give that as --adapters",
                 "serve takes no --adapter: it would be every request's");
    }
    if (adapter_rank_.value_or(1) < 1 || adapter_mib_.value_or(1) < 1 || adapter_slots_.value_or(1) < 1)
      throw_error(ErrorKind::usage, "--adapter-rank, --adapter-slots and --adapter-mib are at least 1");
    if (!adapters_ && (adapter_rank_ || adapter_mib_ || adapter_slots_)) {
      throw_hint(ErrorKind::usage, "give the folder of adapters as --adapters",
                 "--adapter-rank, --adapter-slots and --adapter-mib say nothing without --adapters");
    }
    if (port_ < 0 || port_ > 65535) throw_error(ErrorKind::usage, "--port {}; it must be from 0 to 65535", port_);
    if (connections_ < 1 || per_address_ < 1) throw_error(ErrorKind::usage, "at least one connection must be allowed");
    if (body_bytes_ < 1024) throw_error(ErrorKind::usage, "--body-bytes {}; at least 1024", body_bytes_);
    if (bodies_bytes_ < body_bytes_) {
      throw_error(ErrorKind::usage, "--bodies-bytes {}; at least as many as --body-bytes, {}", bodies_bytes_,
                  body_bytes_);
    }
    if (queue_per_key_.value_or(1) < 1) throw_error(ErrorKind::usage, "--queue-per-key is at least 1");
    if (queue_per_key_ && *queue_per_key_ > queue_) {
      throw_error(ErrorKind::usage, "--queue-per-key {}; at most --queue, {}", *queue_per_key_, queue_);
    }
    if (queue_per_key_ && !keys_) {
      throw_hint(ErrorKind::usage, "give --api-key-file, or leave it out", "--queue-per-key says nothing without keys");
    }
    if (drain_s_ < 0) throw_error(ErrorKind::usage, "--drain-seconds must not be negative");
  }

  server::ApiSettings read_api_settings() {
    server::ApiSettings settings;
    if (keys_) settings.keys = server::read_keys(*keys_);
    settings.body_bytes = static_cast<size_t>(body_bytes_);
    http_.port = static_cast<int>(port_);
    http_.limits.bodies_bytes = static_cast<size_t>(bodies_bytes_);
    http_.limits.connections = connections_;
    http_.limits.connections_per_address = per_address_;
    return settings;
  }

  // One key alone may not keep all others out.
  int64_t share_of_queue(const std::vector<server::ApiKey>& keys) const {
    return queue_per_key_.value_or(keys.size() > 1 ? std::max<int64_t>(1, queue_ / 2) : queue_);
  }

  int64_t most_rank() const { return adapter_rank_.value_or(64); }

  infer::EngineSettings engine_settings(const Session& session) const {
    infer::EngineSettings settings;
    settings.activation = session.activation;
    settings.context = context_.value_or(session.loaded.spec.context);
    settings.batch_tokens = batch_tokens_;
    settings.sequences = sequences_;
    settings.pages = pages_;
    settings.adapter_rank = adapters_ ? most_rank() : 0;
    settings.adapter_slots = adapter_slots_.value_or(sequences_);
    settings.decoded = session.decoded;
    settings.prefix_cache = !no_prefix_cache_;
    settings.guesses = guesses_;
    settings.scored_at_once = 64;  // one at a time, each would read the whole head
    return settings;
  }

  server::ServedModel served(Session& session, const std::optional<text::ChatTemplate>& chat, int64_t context) const {
    const checkpoint::TextAssets& assets = session.text();
    server::ServedModel model;
    model.id = name_.value_or(session.source.name);
    model.created = static_cast<int64_t>(std::time(nullptr));
    model.tokenizer = &session.tokenizer();
    model.chat = chat ? &*chat : nullptr;
    model.tool_call_tags = chat && assets.chat_template->find("<tool_call>") != std::string::npos;
    model.bos_text = assets.bos_text;
    model.eos_text = assets.eos_text;
    model.eos = assets.eos;
    model.context = context;
    model.vocab = session.loaded.spec.vocab;
    model.hidden = session.loaded.spec.hidden;
    model.fingerprint = fmt::format("fp_{}_{}_{}", INGOT_VERSION, options_.dtype, options_.weights);
    return model;
  }

  void open_access_log(server::ApiSettings& settings, const Log& log) const {
    if (!access_log_) {
      settings.access_log = [&log](std::string_view line) { log.info("{}", line); };
      return;
    }
    const auto file = std::make_shared<Guarded<AppendFile>>(*access_log_);
    const auto told = std::make_shared<std::atomic<bool>>(false);
    settings.access_log = [file, told, &log](std::string_view line) {
      try {
        file->lock()->append(std::string(line) + "\n");
      } catch (const Error& error) {
        if (!told->exchange(true)) log.warning("the access log misses lines: {}", text_of(error));
      }
    };
  }

  // Until a signal, or until the engine fails, and then until what runs has ended. A dead engine ends the program, so
  // that whoever watches it starts another.
  int wait(const StopSignal& stop, const Log& log, server::Api& api, const infer::Service& service,
           server::HttpServer& http) const {
    constexpr std::chrono::milliseconds between{20};
    while (!stop.requested() && service.failure().empty()) std::this_thread::sleep_for(between);
    const std::string failure = service.failure();
    if (!failure.empty()) log.error("the engine has failed: {}", failure);
    log.info("ends: {} requests may run on for {} s; a second signal ends at once", http.counts().exchanges, drain_s_);
    api.drain();
    http.drain();
    const double until = steady_seconds() + drain_s_;
    while ((http.counts().exchanges > 0 || !service.idle()) && steady_seconds() < until)
      std::this_thread::sleep_for(between);
    if (http.counts().exchanges > 0) log.warning("{} requests were cut off", http.counts().exchanges);
    if (!failure.empty()) throw_error(ErrorKind::internal, "the engine has failed: {}", failure);
    return 130;
  }

  ModelOptions options_;
  server::HttpSettings http_;
  std::optional<std::string> name_, keys_, access_log_, adapters_;
  std::optional<int64_t> adapter_rank_, adapter_slots_, adapter_mib_;
  int64_t port_ = 8000;
  int64_t sequences_ = 16;
  std::optional<int64_t> context_;
  int64_t batch_tokens_ = 512;
  int64_t pages_ = 0;
  bool no_prefix_cache_ = false;
  int64_t guesses_ = 0;
  int64_t queue_ = 16384;
  int64_t connections_ = 16384;
  int64_t per_address_ = 16384;
  std::optional<int64_t> queue_per_key_;
  int64_t body_bytes_ = 8 << 20;
  int64_t bodies_bytes_ = 256 << 20;
  double drain_s_ = 30;
};

}  // namespace

std::unique_ptr<Command> serve_command() { return std::make_unique<Serve>(); }

}  // namespace ingot::app
