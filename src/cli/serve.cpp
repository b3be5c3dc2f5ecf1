// ingot serve: the OpenAI-compatible server.
#include <fmt/format.h>
#include <sys/resource.h>

#include <chrono>
#include <ctime>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/machine.h"
#include "base/mutex.h"
#include "base/signals.h"
#include "cli/interrupt.h"
#include "cli/model_options.h"
#include "cli/model_ranks.h"
#include "cli/serve_dry_run.h"
#include "infer/follower.h"
#include "infer/serve_memory.h"
#include "infer/service.h"
#include "runtime/refusal_log.h"
#include "runtime/session.h"
#include "server/access_log.h"
#include "server/address.h"
#include "server/api.h"
#include "server/cors.h"
#include "server/grammar_masks.h"
#include "server/http_server.h"
#include "server/keys.h"
#include "server/served_adapters.h"
#include "text/chat_template.h"

namespace ingot::cli {

namespace {

constexpr int64_t max_prompt_tokens = int64_t{64} << 20;  // over all queued and running requests
constexpr int64_t own_descriptors = 64;                   // for the listener, logs, and adapters that are being read

// The number of connections to accept: as requested, or fewer if the limit on open files, minus `others`, is lower.
// Every connection uses a descriptor, also one that is refused.
int64_t possible_connections(const Log& log, int64_t connections, int64_t others) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return connections;
  limit.rlim_cur = limit.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) getrlimit(RLIMIT_NOFILE, &limit);
  const auto files = static_cast<int64_t>(std::min<rlim_t>(limit.rlim_cur, rlim_t{1} << 40));
  const int64_t possible = std::max<int64_t>(1, files - others);
  if (possible >= connections) return connections;
  log.warning("the limit of {} open files (ulimit -n) allows only {} connections, not {}", files, possible,
              connections);
  return possible;
}

constexpr int64_t max_mib = int64_t{1} << 40;

class Serve : public Command {
 public:
  const char* name() const override { return "serve"; }
  const char* summary() const override { return "serve a model over an OpenAI-compatible HTTP API"; }

  void declare(Arguments& arguments) override {
    cli::declare(options_, arguments, false);  // an adapter is a model of its own: --adapters
    arguments.option("name", name_, "model name in the API (default: the name of its folder or file)");
    arguments.option("host", http_.host, "the address to listen on; other than loopback addresses need --api-key-file");
    arguments.option("port", port_, "the port to listen on; 0: any free port");
    arguments.option("api-key-file", keys_,
                     "file of API keys, one per line: the key or its sha256:HEX, then optionally a name, requests=N "
                     "(per minute), concurrent=N and infer (may not change adapters or ask for a priority above 0)");
    arguments.option("cors-origin", origins_,
                     "allowed CORS origin (https://app.example), or '*' if there are keys; may be given several times "
                     "(default: none)");
    arguments.option("tls-cert", http_.certificate, "PEM file of the certificate and its chain; enables HTTPS");
    arguments.option("tls-key", http_.key, "PEM file of the certificate's private key");
    arguments.option(
        "adapters", adapters_,
        "a folder with one subfolder per LoRA adapter in PEFT's layout, each served as a model under its name");
    arguments.option("adapter-rank", adapter_rank_, "largest rank of an adapter (default: 64)");
    arguments.option("adapter-slots", adapter_slots_,
                     "largest number of adapters in a batch; each reserves device memory for --adapter-rank (default: "
                     "as many as --sequences)");
    arguments.option("adapter-mib", adapter_mib_,
                     "host memory for cached adapters; others are read again when requested (default: 4096)");
    arguments.flag("allow-special-tokens", allow_special_tokens_,
                   "parse special tokens, such as <|im_end|>, in message contents too: users can then forge turns");
    arguments.option("sequences", sequences_, "maximum requests in a batch");
    arguments.option("context", context_, "maximum tokens of prompt and answer (default: the model's context)");
    arguments.option("batch-tokens", batch_tokens_, "maximum tokens per engine step");
    arguments.option("kv-cache-mib", kv_cache_mib_,
                     "memory of the KV cache (default: enough for --sequences full contexts, but at most a quarter of "
                     "the memory available at startup; on a GPU nine tenths of what is left)");
    arguments.option("pages", pages_, "size of the KV cache in pages of 16 tokens, instead of --kv-cache-mib");
    arguments.flag("no-prefix-cache", no_prefix_cache_, "disable the prefix cache");
    arguments.option("guesses", draft_tokens_,
                     "maximum draft tokens per step of speculative decoding by prompt lookup; 0: off");
    arguments.option("queue", queue_, "maximum queued requests; further ones are refused with 429");
    arguments.option("queue-per-key", queue_per_key_,
                     "maximum queued requests per key (default: half of --queue if there are several keys)");
    arguments.option("connections", connections_, "maximum simultaneous connections");
    arguments.option("connections-per-address", per_address_,
                     "maximum connections per address (IPv6: per /64 network) (default: a quarter of --connections)");
    arguments.option("body-bytes", body_bytes_, "maximum bytes of a request body");
    arguments.option("bodies-bytes", bodies_bytes_,
                     "maximum bytes of all request bodies being read at a time, not counting the first 65536 of each; "
                     "beyond it, larger bodies are refused with 503");
    arguments.flag("dry-run", dry_run_,
                   "print the memory that every device would take, and whether it fits, and end (exit code 4 if not)");
    arguments.option("machine", machine_,
                     "with --dry-run: plan for GPUs of this machine, a file or a name of recipes/machines");
    arguments.option(
        "rank-timeout", rank_timeout_s_,
        "with --tp or --pp: seconds after which a device that does not answer ends the server; also how much longer "
        "than another it may take to load its part of the model (default: 600)");
    arguments.option("drain-seconds", drain_s_, "seconds that running requests may take after SIGTERM");
    arguments.option("access-log", access_log_, "access log file, one JSON line per request (default: standard error)");
    arguments.example(
        "ingot serve --model SmolLM2-135M-Instruct --port 8000\n"
        "  curl http://127.0.0.1:8000/v1/models\n"
        "  (printf 'sha256:%s alice requests=600\\n' \"$(printf %s \"$KEY\" | sha256sum | cut -d' ' -f1)\" adds a key "
        "to the file of --api-key-file)");
  }

  int run(const Output& output) override {
    const StopSignal stop(&exit_interrupted, HangUp::ignored);
    ReloadSignal reload;
    const Log log(LogLevel::info);
    check();
    if (dry_run_) {
      return serve_dry_run(options_, engine_settings(), cache_bytes(), machine_,
                           [&](std::string_view text) { output.print(text); });
    }
    const MemoryUse at_start = memory_use();
    return on_model_ranks(
        options_,
        [&](const runtime::ModelRank& rank) {
          runtime::Session session(options_, rank);
          if (session.leads()) return serve(session, at_start, stop, reload, log);
          memory_for_each(session);
          return follow_engine(session);
        },
        rank_timeout_s_.value_or(rank_timeout_s));
  }

 private:
  int serve(runtime::Session& session, const MemoryUse& at_start, const StopSignal& stop, ReloadSignal& reload,
            const Log& log) {
    server::ApiSettings api_settings = read_api_settings();
    const checkpoint::TextAssets& assets = session.text();
    std::optional<text::ChatTemplate> chat;
    if (assets.chat_template) chat.emplace(*assets.chat_template, session.source.name + ": chat template");
    session.tokenizer();  // throws without a tokenizer; loads it before memory use is measured
    limit_connections(log, session.loaded.files ? session.loaded.files->size() : 0);
    const size_t available = memory_for_each(session);
    if (stop.requested()) {
      infer::release_followers(session.ranks);
      return 130;
    }
    const infer::EngineSettings engine = plan_memory(session, at_start, available, log);
    runtime::log_refusals(*session.runtime.device, log);
    infer::Service service(
        std::make_unique<infer::Engine>(*session.runtime.device, session.runtime.registry, *session.runtime.threads,
                                        *session.model, engine, session.ranks),
        queue_, share_of_queue(api_settings.keys), session.loaded.files, max_prompt_tokens);
    const server::ServedModel model = served(session, chat, engine.context);
    Guarded<const server::HttpServer*> counted{nullptr};
    api_settings.http_counts = [&counted] {
      const auto held = counted.lock();
      return *held ? (*held)->counts() : server::HttpCounts{};
    };
    std::optional<server::AccessLog> access_log;
    if (access_log_) access_log.emplace(*access_log_, log);
    api_settings.access_log = [&](std::string_view line) {
      access_log ? access_log->append(line) : log.info("{}", line);
    };
    server::GrammarMasks masks(std::make_shared<const grammar::Vocabulary>(*model.tokenizer, model.eos));
    std::optional<infer::AdapterStore> store;
    std::optional<server::ServedAdapters> adapters;
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
    log.info("{} answers at {}{}", model.id, url, keys_ ? "" : " (from this machine only, without --api-key-file)");
    return wait(stop, reload, log, Served{api, service, *http, access_log, session.loaded.files});
  }

  void check() const {
    if (!keys_ && !server::is_loopback(http_.host)) {
      throw_hint(ErrorKind::usage, "give --api-key-file, or remove --host",
                 "--host {} without API keys would give access to anybody", http_.host);
    }
    for (const std::string& origin : origins_) server::check_origin(origin);
    if (!keys_ && std::ranges::find(origins_, "*") != origins_.end()) {
      throw_hint(ErrorKind::usage, "list the origins, or give --api-key-file",
                 "--cors-origin '*' without API keys would give access to every web page opened on this machine");
    }
    if (adapter_rank_.value_or(1) < 1 || adapter_mib_.value_or(1) < 1 || adapter_slots_.value_or(1) < 1)
      throw_error(ErrorKind::usage, "--adapter-rank, --adapter-slots and --adapter-mib must be at least 1");
    if (adapter_mib_.value_or(1) > int64_t{1} << 40) {
      throw_error(ErrorKind::usage, "--adapter-mib {}; must be at most {}", *adapter_mib_, int64_t{1} << 40);
    }
    if (!adapters_ && (adapter_rank_ || adapter_mib_ || adapter_slots_)) {
      throw_hint(ErrorKind::usage, "give the folder of adapters as --adapters",
                 "--adapter-rank, --adapter-slots and --adapter-mib have no effect without --adapters");
    }
    if (context_.value_or(1) < 1) throw_error(ErrorKind::usage, "--context {}; must be at least 1", *context_);
    if (kv_cache_mib_ && pages_ != 0) throw_error(ErrorKind::usage, "give --kv-cache-mib or --pages, not both");
    if (kv_cache_mib_.value_or(1) < 1 || kv_cache_mib_.value_or(1) > max_mib)
      throw_error(ErrorKind::usage, "--kv-cache-mib {}; it must be from 1 to {}", *kv_cache_mib_, max_mib);
    if (port_ < 0 || port_ > 65535) throw_error(ErrorKind::usage, "--port {}; it must be from 0 to 65535", port_);
    if (connections_ < 1 || per_address_.value_or(1) < 1)
      throw_error(ErrorKind::usage, "--connections must be at least 1");
    if (per_address_.value_or(1) > connections_) {
      throw_error(ErrorKind::usage, "--connections-per-address {}; must be at most --connections, {}", *per_address_,
                  connections_);
    }
    if (body_bytes_ < 1024) throw_error(ErrorKind::usage, "--body-bytes {}; must be at least 1024", body_bytes_);
    // The buffer of a chunked body doubles as it grows, and one key may use half of the total.
    const int64_t times = keys_ ? 4 : 2;
    if (bodies_bytes_ / times < body_bytes_) {
      throw_error(ErrorKind::usage, "--bodies-bytes {}; must be at least {} times --body-bytes, {}", bodies_bytes_,
                  times, body_bytes_);
    }
    if (queue_per_key_.value_or(1) < 1) throw_error(ErrorKind::usage, "--queue-per-key must be at least 1");
    if (queue_per_key_ && *queue_per_key_ > queue_) {
      throw_error(ErrorKind::usage, "--queue-per-key {}; must be at most --queue, {}", *queue_per_key_, queue_);
    }
    if (queue_per_key_ && !keys_) {
      throw_hint(ErrorKind::usage, "give --api-key-file, or remove --queue-per-key",
                 "--queue-per-key has no effect without API keys");
    }
    if (machine_ && !dry_run_) throw_error(ErrorKind::usage, "--machine needs --dry-run");
    check_rank_timeout();
    if (drain_s_ < 0) throw_error(ErrorKind::usage, "--drain-seconds must not be negative");
  }

  void check_rank_timeout() const {
    if (options_.tp * options_.pp == 1) {
      if (rank_timeout_s_) throw_error(ErrorKind::usage, "--rank-timeout has no effect without --tp or --pp");
      return;
    }
    const double timeout_s = rank_timeout_s_.value_or(rank_timeout_s);
    if (timeout_s >= 20 && timeout_s > drain_s_ + last_answers_s) return;
    throw_error(ErrorKind::usage, "--rank-timeout {}; must be at least 20 seconds, and above --drain-seconds + {}",
                timeout_s, last_answers_s);
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

  // One address must not exhaust all connections.
  void limit_connections(const Log& log, int64_t watched_files) {
    server::HttpLimits& limits = http_.limits;
    limits.connections = possible_connections(log, connections_, limits.refusals + watched_files + own_descriptors);
    limits.connections_per_address =
        std::min(limits.connections, per_address_.value_or(std::max<int64_t>(1, limits.connections / 4)));
  }

  // One key must not fill the whole queue.
  int64_t share_of_queue(const std::vector<server::ApiKey>& keys) const {
    return queue_per_key_.value_or(keys.size() > 1 ? std::max<int64_t>(1, queue_ / 2) : queue_);
  }

  int64_t max_rank() const { return adapter_rank_.value_or(64); }

  // Logs the server's memory plan, and returns the engine's settings according to it.
  infer::EngineSettings plan_memory(const runtime::Session& session, const MemoryUse& at_start, size_t available,
                                    const Log& log) const {
    infer::RequestMemory requests;
    requests.adapters = adapters_ ? 2 * adapter_bytes() : 0;  // in use, and cached for others
    requests.bodies = static_cast<size_t>(bodies_bytes_) +
                      static_cast<size_t>(http_.limits.connections) * http_.limits.uncounted_bytes;
    requests.prompts = 2 * max_prompt_tokens * sizeof(int32_t);  // a running request has its own copy
    requests.grammars = server::GrammarMasks::max_bytes;
    infer::EngineSettings settings = engine_settings();
    settings.activation = session.activation;
    settings.shard = session.model->shard();
    settings.decoded = session.decoded;
    settings.int8_activations = session.int8_activations;
    const infer::ServeMemory memory =
        infer::plan_serve_memory(session.loaded, *session.runtime.device, *session.runtime.threads, settings,
                                 cache_bytes(), requests, at_start, available);
    for (const std::string& line : infer::memory_lines(memory)) log.info("{}", line);
    for (const std::string& warning : infer::memory_warnings(memory)) log.warning("{}", warning);
    return memory.cache.settings;
  }

  size_t adapter_bytes() const { return static_cast<size_t>(adapter_mib_.value_or(4096)) << 20; }

  std::optional<size_t> cache_bytes() const {
    if (!kv_cache_mib_) return std::nullopt;
    return static_cast<size_t>(*kv_cache_mib_) << 20;
  }

  // Without what the model decides.
  infer::EngineSettings engine_settings() const {
    infer::EngineSettings settings;
    settings.context = context_.value_or(0);
    settings.batch_tokens = batch_tokens_;
    settings.sequences = sequences_;
    settings.pages = pages_;
    settings.adapter_rank = adapters_ ? max_rank() : 0;
    settings.adapter_slots = adapter_slots_.value_or(sequences_);
    settings.prefix_cache = !no_prefix_cache_;
    settings.draft_tokens = draft_tokens_;
    settings.scored_at_once = 64;  // scoring one row at a time would read the whole output head for each
    return settings;
  }

  server::ServedModel served(runtime::Session& session, const std::optional<text::ChatTemplate>& chat,
                             int64_t context) const {
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
    model.fingerprint = fmt::format("fp_{}_{}_{}{}", INGOT_VERSION, options_.dtype, options_.weights,
                                    session.int8_activations ? "_int8_activations" : "");
    return model;
  }

  // The components that serve requests.
  struct Served {
    server::Api& api;
    infer::Service& service;
    server::HttpServer& http;
    std::optional<server::AccessLog>& access_log;
    std::shared_ptr<const FileWatch> files;  // null when no file is read in place
  };

  // Reloads files after SIGHUP. A file that cannot be read keeps its old contents in effect.
  void read_again(const Log& log, const Served& served) const {
    const auto again = [&](bool used, const char* what, const auto& read) {
      if (!used) return;
      try {
        read();
        log.info("SIGHUP: {} read again", what);
      } catch (const std::exception& error) {
        log.warning("SIGHUP: {} not read again, the previous state stays in use: {}", what, text_of(error));
      }
    };
    again(access_log_.has_value(), "the access log is", [&] { served.access_log->reopen(); });
    again(keys_.has_value(), "the keys are", [&] {
      std::vector<server::ApiKey> keys = server::read_keys(*keys_);
      served.service.set_share(share_of_queue(keys));
      served.api.set_keys(std::move(keys));
    });
    again(!http_.certificate.empty(), "the certificate is", [&] { served.http.reload_certificate(); });
    if (!access_log_ && !keys_ && http_.certificate.empty()) log.info("SIGHUP: nothing to read again");
  }

  // Waits for a signal or a failure of the engine, and then until running requests have finished. A failed engine ends
  // the program, so that a service manager can restart it.
  int wait(const StopSignal& stop, ReloadSignal& reload, const Log& log, const Served& served) const {
    constexpr std::chrono::milliseconds between{20};
    double look_at_files = 0;
    bool reported = false, reported_replaced = false;
    const auto report_replaced = [&] {
      if (reported_replaced || !served.files) return;
      const std::optional<std::filesystem::path> path = served.files->replaced();
      if (!path) return;
      reported_replaced = true;
      log.info("model file {} was renamed, removed or replaced; the opened file continues to be served",
               path->string());
    };
    const auto report_fault = [&] {
      if (reported) return;
      const std::optional<FileFault> fault = served.service.file_fault();
      if (!fault) return;
      reported = true;
      log.error("model file {}: {}; requests will fail until it is restored and the server is restarted",
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
    log.info("shutting down: {} running requests have {} s to finish; a second signal stops at once",
             served.http.counts().exchanges, drain_s_);
    served.api.drain();
    served.http.drain();
    const auto wait_while = [&](double seconds, const auto& busy) {
      const double until = steady_seconds() + seconds;
      while (busy() && steady_seconds() < until) std::this_thread::sleep_for(between);
    };
    wait_while(drain_s_, [&] { return served.http.counts().exchanges > 0 || !served.service.idle(); });
    if (const int64_t left = served.http.counts().exchanges; left > 0) {
      log.warning("{} requests did not finish and get an error", left);
    }
    served.api.finish();
    served.http.finish();
    // Clients that read their response receive its end at once.
    wait_while(last_answers_s, [&] { return served.http.counts().connections > 0; });
    if (const int64_t left = served.http.counts().exchanges; left > 0) log.warning("{} requests were aborted", left);
    if (!failure.empty()) throw_error(ErrorKind::internal, "the engine has failed: {}", failure);
    return 130;
  }

  static constexpr double last_answers_s = 5;

  runtime::ModelOptions options_;
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
  int64_t draft_tokens_ = 0;
  int64_t queue_ = 16384;
  int64_t connections_ = 16384;
  std::optional<int64_t> per_address_;
  std::optional<int64_t> queue_per_key_;
  int64_t body_bytes_ = 8 << 20;
  int64_t bodies_bytes_ = 256 << 20;
  double drain_s_ = 30;
  std::optional<double> rank_timeout_s_;
  bool dry_run_ = false;
  std::optional<std::string> machine_;
};

}  // namespace

std::unique_ptr<Command> serve_command() { return std::make_unique<Serve>(); }

}  // namespace ingot::cli
