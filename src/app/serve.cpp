// ingot serve: the OpenAI-compatible server.
#include <fmt/format.h>
#include <sys/resource.h>

#include <chrono>
#include <ctime>
#include <thread>

#include "app/access_log.h"
#include "app/grammar_masks.h"
#include "app/interrupt.h"
#include "app/serve_memory.h"
#include "app/served_adapters.h"
#include "app/session.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/machine.h"
#include "base/mutex.h"
#include "base/signals.h"
#include "infer/service.h"
#include "server/address.h"
#include "server/api.h"
#include "server/cors.h"
#include "server/http_server.h"
#include "server/keys.h"
#include "text/chat_template.h"

namespace ingot::app {

namespace {

constexpr int64_t max_prompt_tokens = int64_t{64} << 20;  // of requests that wait or are under way
constexpr int64_t own_descriptors = 64;                   // of the listener, logs, adapters that are read

// A connection is a descriptor, also one that is refused. As many connections as were asked for, or as the system lets
// this process have open files beside `others`.
int64_t possible_connections(const Log& log, int64_t connections, int64_t others) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return connections;
  limit.rlim_cur = limit.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) getrlimit(RLIMIT_NOFILE, &limit);
  const auto files = static_cast<int64_t>(std::min<rlim_t>(limit.rlim_cur, rlim_t{1} << 40));
  const int64_t possible = std::max<int64_t>(1, files - others);
  if (possible >= connections) return connections;
  log.warning("the system allows {} open files: {} connections at a time, not {} (ulimit -n)", files, possible,
              connections);
  return possible;
}

constexpr int64_t max_mib = int64_t{1} << 40;

class Serve : public Command {
 public:
  const char* name() const override { return "serve"; }
  const char* summary() const override { return "answer OpenAI's HTTP API with a model"; }

  void declare(Arguments& arguments) override {
    options_.declare(arguments, false);  // an adapter is a model of its own: --adapters
    arguments.option("name", name_, "what clients call the model; its folder's or file's name without it");
    arguments.option("host", http_.host, "the address to listen on; another than this machine's needs --api-key-file");
    arguments.option("port", port_, "the port to listen on; 0: any that is free");
    arguments.option("api-key-file", keys_,
                     "keys, one a line: the key or sha256:HEX of it, then optionally a name, requests=N (a minute), "
                     "concurrent=N and infer (may not change adapters or ask for a priority above 0)");
    arguments.option(
        "cors-origin", origins_,
        "an origin whose pages in browsers may ask (https://app.example), or '*' where there are keys; may "
        "be given several times; none without it");
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
    arguments.flag("allow-special-tokens", allow_special_tokens_,
                   "find special tokens, such as <|im_end|>, in the contents of messages too: who writes one can forge "
                   "turns");
    arguments.option("sequences", sequences_, "most requests in one batch");
    arguments.option("context", context_, "most tokens of prompt and answer; the model's without it");
    arguments.option("batch-tokens", batch_tokens_, "most tokens computed in a step");
    arguments.option("kv-cache-mib", kv_cache_mib_,
                     "most memory of the KV cache; without it what the contexts of all --sequences take, and at most a "
                     "quarter of the memory that is available at the start (of a GPU nine tenths of what is left)");
    arguments.option("pages", pages_, "pages of 16 tokens of the KV cache, instead");
    arguments.flag("no-prefix-cache", no_prefix_cache_,
                   "compute every prompt anew, also where it begins as another did");
    arguments.option("guesses", guesses_,
                     "most tokens a step that are guessed from earlier in the text and checked; 0: none");
    arguments.option("queue", queue_, "most requests that wait; more are refused with 429");
    arguments.option("queue-per-key", queue_per_key_,
                     "of them, of one key; half of them without it where there are several keys");
    arguments.option("connections", connections_, "most connections at a time");
    arguments.option("connections-per-address", per_address_,
                     "of them, from one address (of IPv6: from one network of 64 bits); a quarter of them without it");
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
    const StopSignal stop(&exit_interrupted, HangUp::ignored);
    ReloadSignal reload;
    const Log log(LogLevel::info);
    check();
    server::ApiSettings api_settings = read_api_settings();
    const MemoryUse at_start = memory_use();
    Session session(options_);
    if (stop.requested()) return 130;
    const checkpoint::TextAssets& assets = session.text();
    std::optional<text::ChatTemplate> chat;
    if (assets.chat_template) chat.emplace(*assets.chat_template, session.source.name + ": chat template");
    session.tokenizer();  // there is one, and it is in memory when that is looked at
    limit_connections(log, session.loaded.files ? session.loaded.files->size() : 0);
    const infer::EngineSettings engine = plan_memory(session, at_start, log);
    infer::Service service(std::make_unique<infer::Engine>(*session.runtime.device, session.runtime.registry,
                                                           *session.runtime.threads, *session.model, engine),
                           queue_, share_of_queue(api_settings.keys), session.loaded.files, max_prompt_tokens);
    const server::ServedModel model = served(session, chat, engine.context);
    Guarded<const server::HttpServer*> counted{nullptr};
    api_settings.http_counts = [&counted] {
      const auto held = counted.lock();
      return *held ? (*held)->counts() : server::HttpCounts{};
    };
    std::optional<AccessLog> access_log;
    if (access_log_) access_log.emplace(*access_log_, log);
    api_settings.access_log = [&](std::string_view line) {
      access_log ? access_log->append(line) : log.info("{}", line);
    };
    GrammarMasks masks(std::make_shared<const grammar::Vocabulary>(*model.tokenizer, model.eos));
    std::optional<infer::AdapterStore> store;
    std::optional<ServedAdapters> adapters;
    if (adapters_) {
      store.emplace(
          session.loaded.spec,
          infer::AdapterStoreSettings{
              .root = *adapters_, .activation = session.activation, .budget = adapter_bytes(), .max_rank = max_rank()});
      adapters.emplace(*store);
      for (const infer::BrokenAdapter& broken : store->check()) {
        log.warning("the adapter {} cannot be used: {}", broken.name, broken.reason);
      }
      log.info("{} adapters below {}", store->counts().registered, *adapters_);
    }
    server::Api api(std::move(api_settings), model, service, adapters ? &*adapters : nullptr, &masks);
    const auto http = std::make_unique<server::HttpServer>(http_, api);
    *counted.lock() = http.get();
    const std::string url =
        fmt::format("{}://{}:{}", http_.certificate.empty() ? "http" : "https",
                    http_.host.find(':') == std::string::npos ? http_.host : "[" + http_.host + "]", http->port());
    log.info("{} answers at {}{}", model.id, url, keys_ ? "" : " (this machine only: there is no --api-key-file)");
    return wait(stop, reload, log, Served{api, service, *http, access_log, session.loaded.files});
  }

 private:
  void check() const {
    if (!keys_ && !server::is_loopback(http_.host)) {
      throw_hint(ErrorKind::usage, "give --api-key-file, or leave --host out",
                 "--host {} without keys would let anybody in", http_.host);
    }
    for (const std::string& origin : origins_) server::check_origin(origin);
    if (!keys_ && std::ranges::find(origins_, "*") != origins_.end()) {
      throw_hint(ErrorKind::usage, "name the origins, or give --api-key-file",
                 "--cors-origin '*' without keys would let every page in a browser on this machine ask");
    }
    if (adapter_rank_.value_or(1) < 1 || adapter_mib_.value_or(1) < 1 || adapter_slots_.value_or(1) < 1)
      throw_error(ErrorKind::usage, "--adapter-rank, --adapter-slots and --adapter-mib are at least 1");
    if (adapter_mib_.value_or(1) > int64_t{1} << 40) {
      throw_error(ErrorKind::usage, "--adapter-mib {}; at most {}", *adapter_mib_, int64_t{1} << 40);
    }
    if (!adapters_ && (adapter_rank_ || adapter_mib_ || adapter_slots_)) {
      throw_hint(ErrorKind::usage, "give the folder of adapters as --adapters",
                 "--adapter-rank, --adapter-slots and --adapter-mib say nothing without --adapters");
    }
    if (context_.value_or(1) < 1) throw_error(ErrorKind::usage, "--context {}; at least 1", *context_);
    if (kv_cache_mib_ && pages_ != 0) throw_error(ErrorKind::usage, "give --kv-cache-mib or --pages, not both");
    if (kv_cache_mib_.value_or(1) < 1 || kv_cache_mib_.value_or(1) > max_mib)
      throw_error(ErrorKind::usage, "--kv-cache-mib {}; it must be from 1 to {}", *kv_cache_mib_, max_mib);
    if (port_ < 0 || port_ > 65535) throw_error(ErrorKind::usage, "--port {}; it must be from 0 to 65535", port_);
    if (connections_ < 1 || per_address_.value_or(1) < 1)
      throw_error(ErrorKind::usage, "at least one connection must be allowed");
    if (per_address_.value_or(1) > connections_) {
      throw_error(ErrorKind::usage, "--connections-per-address {}; at most --connections, {}", *per_address_,
                  connections_);
    }
    if (body_bytes_ < 1024) throw_error(ErrorKind::usage, "--body-bytes {}; at least 1024", body_bytes_);
    // A body in chunks is held in memory that doubles as it grows, and a key has half of what there is for all.
    const int64_t times = keys_ ? 4 : 2;
    if (bodies_bytes_ / times < body_bytes_) {
      throw_error(ErrorKind::usage, "--bodies-bytes {}; at least {} times --body-bytes, {}", bodies_bytes_, times,
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
    settings.origins = origins_;
    http_.port = static_cast<int>(port_);
    http_.limits.bodies_bytes = static_cast<size_t>(bodies_bytes_);
    return settings;
  }

  // One address alone may not keep all others out.
  void limit_connections(const Log& log, int64_t watched_files) {
    server::HttpLimits& limits = http_.limits;
    limits.connections = possible_connections(log, connections_, limits.refusals + watched_files + own_descriptors);
    limits.connections_per_address =
        std::min(limits.connections, per_address_.value_or(std::max<int64_t>(1, limits.connections / 4)));
  }

  // One key alone may not keep all others out.
  int64_t share_of_queue(const std::vector<server::ApiKey>& keys) const {
    return queue_per_key_.value_or(keys.size() > 1 ? std::max<int64_t>(1, queue_ / 2) : queue_);
  }

  int64_t max_rank() const { return adapter_rank_.value_or(64); }

  // Says what the server will take, and plans the engine accordingly.
  infer::EngineSettings plan_memory(const Session& session, const MemoryUse& at_start, const Log& log) const {
    AskedMemory asked;
    asked.adapters = adapters_ ? 2 * adapter_bytes() : 0;  // in use, and kept for others
    asked.bodies = static_cast<size_t>(bodies_bytes_) +
                   static_cast<size_t>(http_.limits.connections) * http_.limits.uncounted_bytes;
    asked.prompts = 2 * max_prompt_tokens * sizeof(int32_t);  // an answer under way has its own copy
    asked.grammars = GrammarMasks::max_bytes;
    std::optional<size_t> cache_bytes;
    if (kv_cache_mib_) cache_bytes = static_cast<size_t>(*kv_cache_mib_) << 20;
    const ServeMemory memory = plan_serve_memory(session, engine_settings(session), cache_bytes, asked, at_start);
    for (const std::string& line : memory_lines(memory)) log.info("{}", line);
    for (const std::string& warning : memory_warnings(memory)) log.warning("{}", warning);
    return memory.cache.settings;
  }

  size_t adapter_bytes() const { return static_cast<size_t>(adapter_mib_.value_or(4096)) << 20; }

  infer::EngineSettings engine_settings(const Session& session) const {
    infer::EngineSettings settings;
    settings.activation = session.activation;
    settings.context = context_.value_or(0);
    settings.batch_tokens = batch_tokens_;
    settings.sequences = sequences_;
    settings.pages = pages_;
    settings.adapter_rank = adapters_ ? max_rank() : 0;
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
    model.allow_special_tokens = allow_special_tokens_;
    model.tool_call_tags = chat && assets.chat_template->find("<tool_call>") != std::string::npos;
    model.bos_text = assets.bos_text;
    model.eos_text = assets.eos_text;
    model.eos = assets.eos;
    model.context = context;
    model.vocab = session.loaded.spec.vocab;
    model.longest_token = server::longest_token_of(*model.tokenizer);
    model.hidden = session.loaded.spec.hidden;
    model.fingerprint = fmt::format("fp_{}_{}_{}", INGOT_VERSION, options_.dtype, options_.weights);
    return model;
  }

  // What answers.
  struct Served {
    server::Api& api;
    infer::Service& service;
    server::HttpServer& http;
    std::optional<AccessLog>& access_log;
    std::shared_ptr<const FileWatch> files;  // null when none is read in place
  };

  // After SIGHUP. What cannot be read stays as it was.
  void read_again(const Log& log, const Served& served) const {
    const auto again = [&](bool used, const char* what, const auto& read) {
      if (!used) return;
      try {
        read();
        log.info("SIGHUP: {} read again", what);
      } catch (const std::exception& error) {
        log.warning("SIGHUP: {} not read again, as before from now on: {}", what, text_of(error));
      }
    };
    again(access_log_.has_value(), "the access log is", [&] { served.access_log->reopen(); });
    again(keys_.has_value(), "the keys are", [&] {
      std::vector<server::ApiKey> keys = server::read_keys(*keys_);
      served.service.set_share(share_of_queue(keys));
      served.api.set_keys(std::move(keys));
    });
    again(!http_.certificate.empty(), "the certificate is", [&] { served.http.reload_certificate(); });
    if (!access_log_ && !keys_ && http_.certificate.empty()) log.info("SIGHUP: there is nothing to read again");
  }

  // Until a signal, or until the engine fails, and then until what runs has ended. A dead engine ends the program, so
  // that whoever watches it starts another.
  int wait(const StopSignal& stop, ReloadSignal& reload, const Log& log, const Served& served) const {
    constexpr std::chrono::milliseconds between{20};
    double look_at_files = 0;
    bool reported = false, reported_replaced = false;
    const auto report_replaced = [&] {
      if (reported_replaced || !served.files) return;
      const std::optional<std::filesystem::path> path = served.files->replaced();
      if (!path) return;
      reported_replaced = true;
      log.info("the model's file {} was renamed, removed or replaced; the one that was opened is served on",
               path->string());
    };
    const auto report_fault = [&] {
      if (reported) return;
      const std::optional<FileFault> fault = served.service.file_fault();
      if (!fault) return;
      reported = true;
      log.error(
          "the model's file {}: {}; nothing can be generated until it is put back and the server is started again",
          fault->file.string(), fault->what);
    };
    while (!stop.requested() && served.service.failure().empty()) {
      if (reload.take()) read_again(log, served);
      if (steady_seconds() >= look_at_files) {
        look_at_files = steady_seconds() + 1;
        report_fault();
        report_replaced();
      }
      std::this_thread::sleep_for(between);
    }
    report_fault();
    const std::string failure = served.service.failure();
    if (!failure.empty()) log.error("the engine has failed: {}", failure);
    log.info("ends: {} requests may run on for {} s; a second signal ends at once", served.http.counts().exchanges,
             drain_s_);
    served.api.drain();
    served.http.drain();
    const auto wait_while = [&](double seconds, const auto& busy) {
      const double until = steady_seconds() + seconds;
      while (busy() && steady_seconds() < until) std::this_thread::sleep_for(between);
    };
    wait_while(drain_s_, [&] { return served.http.counts().exchanges > 0 || !served.service.idle(); });
    if (const int64_t left = served.http.counts().exchanges; left > 0) {
      log.warning("{} requests have no end yet and get an error that says so", left);
    }
    served.api.finish();
    served.http.finish();
    // Those who take their answer do so at once.
    wait_while(last_answers_s, [&] { return served.http.counts().connections > 0; });
    if (const int64_t left = served.http.counts().exchanges; left > 0) log.warning("{} requests were cut off", left);
    if (!failure.empty()) throw_error(ErrorKind::internal, "the engine has failed: {}", failure);
    return 130;
  }

  static constexpr double last_answers_s = 5;

  ModelOptions options_;
  server::HttpSettings http_;
  std::optional<std::string> name_, keys_, access_log_, adapters_;
  std::vector<std::string> origins_;
  std::optional<int64_t> adapter_rank_, adapter_slots_, adapter_mib_;
  int64_t port_ = 8000;
  bool allow_special_tokens_ = false;
  int64_t sequences_ = 16;
  std::optional<int64_t> context_;
  int64_t batch_tokens_ = 512;
  int64_t pages_ = 0;
  std::optional<int64_t> kv_cache_mib_;
  bool no_prefix_cache_ = false;
  int64_t guesses_ = 0;
  int64_t queue_ = 16384;
  int64_t connections_ = 16384;
  std::optional<int64_t> per_address_;
  std::optional<int64_t> queue_per_key_;
  int64_t body_bytes_ = 8 << 20;
  int64_t bodies_bytes_ = 256 << 20;
  double drain_s_ = 30;
};

}  // namespace

std::unique_ptr<Command> serve_command() { return std::make_unique<Serve>(); }

}  // namespace ingot::app
