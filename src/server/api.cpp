#include "server/api.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/strings.h"
#include "server/api_error.h"
#include "server/attempt.h"
#include "server/cors.h"
#include "server/ids.h"
#include "server/reply_json.h"
#include "server/route_table.h"
#include "server/routes.h"

namespace ingot::server {

namespace {

// Whether a Host header is empty or names this machine. A server without API keys answers no other host, so that a web
// page of another site cannot reach it through a host name that resolves to this machine (DNS rebinding).
bool is_this_machine(std::string_view host) {
  if (host.empty()) return true;
  if (host.starts_with('[')) return host.substr(0, host.find(']') + 1) == "[::1]";
  host = host.substr(0, host.rfind(':'));
  const bool is_number = host.find_first_not_of("0123456789.") == std::string_view::npos;
  return equal_ignoring_case(host, "localhost") || (is_number && host.starts_with("127."));
}

ApiError plain(int status, std::string message, const char* code) {
  ApiError error(status, std::move(message));
  error.code = code;
  return error;
}

struct BufferedReply {
  ReplyHead head;
  std::string body;
};

BufferedReply reply_of(const ApiError& error) {
  BufferedReply reply;
  reply.head.status = error.status;
  if (error.retry_after_s) reply.head.headers.emplace_back("Retry-After", std::to_string(*error.retry_after_s));
  if (error.status == 401) reply.head.headers.emplace_back("WWW-Authenticate", "Bearer");
  reply.body = error_body(error);
  return reply;
}

ApiError connection_error(int status) {
  switch (status) {
    case 408: return plain(408, "The request was received too slowly.", "request_timeout");
    case 413: return plain(413, "The request is too large.", "request_too_large");
    case 431: return plain(431, "The request has too many or too large headers.", "headers_too_large");
    case 503: {
      ApiError busy = plain(503, "Too many connections.", "unavailable");
      busy.type = "server_error";
      busy.retry_after_s = 1;
      return busy;
    }
    default: return plain(400, "This is not an HTTP request.", "invalid_http");
  }
}

ApiError shutting_down_error() { return api_error(Error(ErrorKind::unavailable, "The server is shutting down."), ""); }

// The limit of bodies that wait for a worker is reached, for this key or in total.
ApiError queue_full_error() {
  return api_error(Error(ErrorKind::resource, "Too many requests are waiting to be tokenized; try again later"), "");
}

// The limit of bytes of request bodies is reached, for this key or in total.
ApiError body_budget_error() {
  return api_error(Error(ErrorKind::unavailable, "The server has reached its limit for bytes of request bodies"), "");
}

int whole_seconds(double seconds) { return static_cast<int>(std::ceil(std::min(seconds, 1e6))); }

// A failure to write the log does not affect the response; the function access_log itself reports it.
void write_log(const ApiSettings& settings, const nlohmann::ordered_json& line) {
  if (settings.access_log) attempt([&] { settings.access_log(line_of(line)); });
}

// One request: checks it, produces its response, and counts and logs it at its end.
class ApiExchange : public Collective {
 public:
  ApiExchange(ApiContext& api, RequestHead head)
      : api_(api), head_(std::move(head)), started_(steady_seconds()), id_(make_id("req_")) {
    const std::string_view target = head_.target;
    path_ = target.substr(0, target.find('?'));
    route_ = &route_of(path_);
    answer([&] { check(); });
  }

  std::optional<size_t> body_limit() const override {
    if (reply_) return std::nullopt;  // the request is refused
    return route_->large ? api_.settings.body_bytes : small_body;
  }

  void refuse(int status) override {
    switch (status) {
      case 429: reply_ = reply_of(queue_full_error()); break;
      case 503: reply_ = reply_of(api_.finishing ? shutting_down_error() : body_budget_error()); break;
      default: reply_ = reply_of(connection_error(status));
    }
  }

  bool quick() const override { return route_->quick; }

  uint64_t owner() const override { return owner_of(record_); }

  void receive(std::string body, std::function<void()> wake) override {
    answer([&] { begin(body, std::move(wake)); });
  }

  ReplyPart poll() override {
    ReplyPart part;
    if (work_) {
      answer([&] { part = work_->poll(record_); });
      if (record_.completion_tokens > 0 && !record_.first_token_s) record_.first_token_s = steady_seconds() - started_;
      if (api_.finishing && !reply_ && !part.end && !part.broken) reply_ = reply_of(shutting_down_error());
    }
    if (reply_ && (given_ || part.head)) {  // too late for another head: the error ends the stream
      part.bytes += work_ ? work_->failure(reply_->body) : event(reply_->body);
      part.end = true;
    } else if (reply_) {
      part.head = std::move(reply_->head);
      part.bytes = std::move(reply_->body);
      part.end = true;
    }
    if (part.head) {
      given_ = true;
      status_ = part.head->status;
      add_headers(*part.head);
    }
    return part;
  }

  std::pair<ReplyHead, std::string> cut_short() override {
    cut_short_ = true;
    BufferedReply reply = reply_of(shutting_down_error());
    add_headers(reply.head);
    return {std::move(reply.head), std::move(reply.body)};
  }

  void closed(uint64_t bytes_sent, bool whole) override {
    work_.reset();
    if (admitted_) api_.keys.leave(key_);
    attempt([&] { account(bytes_sent, whole); });  // when out of memory, the request is neither counted nor logged
  }

 private:
  using Json = nlohmann::ordered_json;

  // Adds the headers that every response has, and headers_.
  void add_headers(ReplyHead& head) const {
    head.headers.emplace_back("X-Request-Id", id_);
    head.headers.emplace_back("X-Content-Type-Options", "nosniff");
    head.headers.insert(head.headers.end(), headers_.begin(), headers_.end());
  }

  void account(uint64_t bytes_sent, bool whole) {
    const double seconds = steady_seconds() - started_;
    int status = whole ? status_ : 499;  // nginx's code: the client has closed the connection
    if (cut_short_) status = 503;
    api_.metrics.request(route_->name, status, seconds);
    api_.metrics.tokens(record_.prompt_tokens, record_.completion_tokens);
    if (record_.first_token_s) api_.metrics.first_token(*record_.first_token_s);
    log(bytes_sent, status, seconds);
  }

  // Runs `work`; an exception becomes the response.
  template <class Work>
  void answer(Work work) {
    try {
      work();
    } catch (const ApiError& error) {
      if (error.status == 500) record_.failure = error.message;
      reply_ = reply_of(error);
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::internal) record_.failure = text_of(error);
      reply_ = reply_of(api_error(error, ""));
    } catch (const std::bad_alloc&) {
      record_.failure = "out of memory";
      reply_ = reply_of(api_error(Error(ErrorKind::unavailable, "The server is out of memory."), ""));
    } catch (const std::exception& error) {
      record_.failure = error.what();
      reply_ = reply_of(api_error(Error(ErrorKind::internal, ""), ""));
    }
  }

  // All checks that need only the head.
  void check() {
    if (!api_.keys.required() && !is_this_machine(head_.header("host"))) {
      throw plain(403,
                  "A server without API keys only answers requests whose Host is a name or address of this machine.",
                  "forbidden_host");
    }
    if (check_origin()) return;
    if (!route_->open) check_key();
    if (route_->route == Route::unknown) {
      throw plain(404, fmt::format("Unknown request URL: {} {}.", head_.method.substr(0, 16), shown_path()),
                  "unknown_url");
    }
    if (!is_method_of(head_.method, *route_)) {
      headers_.emplace_back("Allow", methods_of(*route_));
      throw plain(405, fmt::format("{} does not support {}.", shown_path(), head_.method.substr(0, 16)),
                  "method_not_allowed");
    }
    const bool is_admin = route_->route == Route::adapter ||
                          ((route_->route == Route::adapters || route_->route == Route::model) && !reads());
    if (is_admin && key_ >= 0 && !api_.keys.at(key_).admin) {
      throw not_permitted("This key may not change what is served.");
    }
    if (head_.method == "POST") {
      const std::string_view type = head_.header("content-type");
      if (trim(type.substr(0, type.find(';'))) != "application/json") {
        throw plain(415, "The body must be JSON: Content-Type: application/json.", "unsupported_media_type");
      }
    }
  }

  // HEAD is answered as GET, without the body.
  bool reads() const { return head_.method == "GET" || head_.method == "HEAD"; }

  // CORS: adds the headers that let pages of the allowed origins read the response, never with credentials that
  // browsers keep (cookies). Returns true for a preflight request, which has no key (the Fetch standard, 3.2) and is
  // answered here.
  bool check_origin() {
    const CorsHeaders cors = cors_headers(api_.settings.origins, head_, methods_of(*route_));
    headers_.insert(headers_.end(), cors.headers.begin(), cors.headers.end());
    if (!cors.preflight || route_->route == Route::unknown) return false;
    reply_.emplace();
    reply_->head.status = 204;
    return true;
  }

  void check_key() {
    if (!api_.keys.required()) return;
    constexpr std::string_view scheme = "bearer ";
    const std::string_view authorization = head_.header("authorization");
    const bool bears = equal_ignoring_case(authorization.substr(0, scheme.size()), scheme);
    key_ = bears ? api_.keys.find(trim(authorization.substr(scheme.size()))) : -1;
    const Admission admission = api_.keys.enter(key_, steady_seconds());
    if (admission.verdict == Admission::Verdict::unknown_key) {
      ApiError error =
          plain(401, "No valid API key was given; send the header Authorization: Bearer KEY.", "invalid_api_key");
      error.type = "authentication_error";
      throw error;
    }
    if (admission.limit) {
      headers_.emplace_back("x-ratelimit-limit-requests", std::to_string(*admission.limit));
      headers_.emplace_back("x-ratelimit-remaining-requests", std::to_string(admission.remaining));
      headers_.emplace_back("x-ratelimit-reset-requests", fmt::format("{:.3f}s", admission.reset_s));
    }
    admitted_ = admission.verdict == Admission::Verdict::ok;
    record_.key = key_;
    if (admitted_) return;
    const bool at_once = admission.verdict == Admission::Verdict::too_many_at_once;
    ApiError error = plain(429,
                           at_once ? "This key has reached its limit of concurrent requests."
                                   : "This key has reached its limit of requests per minute.",
                           "rate_limit_exceeded");
    error.type = "requests";
    error.retry_after_s = std::max(1, whole_seconds(admission.retry_s));
    throw error;
  }

  void begin(const std::string& body, Wake wake) {
    if (api_.finishing && !route_->open) throw shutting_down_error();
    switch (route_->route) {
      case Route::page: return reply("text/html; charset=utf-8", page_html);
      case Route::health: return reply_json({{"status", api_.draining ? "draining" : "ok"}});
      case Route::ready: return ready();
      case Route::metrics: return reply("text/plain; version=0.0.4", metrics());
      case Route::models: return reply("application/json", list_models(api_));
      case Route::model: {
        const std::string id = rest_of_path();
        return reply("application/json", reads() ? one_model(api_, id) : remove_adapter(api_, id, "model"));
      }
      case Route::adapters:
        return reply("application/json", reads() ? list_adapters(api_) : add_adapter(api_, body, record_));
      case Route::adapter: return reply("application/json", remove_adapter(api_, rest_of_path(), "adapter"));
      case Route::tokenize: return reply("application/json", tokenize(api_, body, record_));
      case Route::detokenize: return reply("application/json", detokenize(api_, body, record_));
      case Route::chat: return start(start_chat, body, std::move(wake));
      case Route::responses: return start(start_responses, body, std::move(wake));
      case Route::completions: return start(start_completion, body, std::move(wake));
      case Route::embeddings: return start(start_embeddings, body, std::move(wake));
      case Route::unknown: return;
    }
  }

  template <class Start>
  void start(Start how, const std::string& body, Wake wake) {
    if (api_.draining) throw shutting_down_error();
    work_ = how(api_, body, record_, std::move(wake));
  }

  void ready() {
    const std::string failure = api_.service.failure();
    if (!failure.empty()) record_.failure = failure;
    if (api_.draining) throw shutting_down_error();
    if (!failure.empty()) throw api_error(Error(ErrorKind::unavailable, "The engine has failed."), "");
    if (const std::optional<FileFault> fault = api_.service.file_fault()) {
      record_.failure = fmt::format("{}: {}", fault->file.string(), fault->what);
      ApiError error = file_fault(fault->file.string());
      error.status = 503;
      throw error;
    }
    reply_json({{"status", "ready"}});
  }

  std::string metrics() const {
    const infer::ServiceCounts counts = api_.service.counts();
    const auto number = [](auto value) { return static_cast<double>(value); };
    std::vector<Gauge> gauges = {
        {"ingot_queued_requests", "Requests that have no output token yet.", number(counts.queued)},
        {"ingot_running_requests", "Requests in the engine's batch.", number(counts.engine.running)},
        {"ingot_kv_pages_used", "Pages of the KV cache in use.", number(counts.engine.used_pages)},
        {"ingot_kv_pages_free", "Free pages of the KV cache.", number(counts.engine.free_pages)},
        {"ingot_preemptions_total", "Requests that were preempted and lost their KV cache pages.",
         number(counts.engine.preemptions), true},
        {"ingot_prefix_lookup_tokens_total", "Prompt tokens looked up in the prefix cache.",
         number(counts.engine.prefix_lookups), true},
        {"ingot_prefix_hit_tokens_total", "Prompt tokens found in the prefix cache.", number(counts.engine.prefix_hits),
         true},
        {"ingot_engine_steps_total", "Steps (batches) run by the engine.", number(counts.steps), true},
        {"ingot_engine_step_seconds_total", "Time spent in engine steps.", counts.step_s, true},
        {"ingot_engine_tokens_total", "Tokens generated by the engine.", number(counts.output_tokens), true},
    };
    if (api_.settings.http_counts) {
      const HttpCounts http = api_.settings.http_counts();
      gauges.push_back({"ingot_connections", "Open connections.", number(http.connections)});
      gauges.push_back({"ingot_body_bytes", "Bytes of request bodies in memory, not counting the first 64 KiB of each.",
                        number(http.body_bytes)});
    }
    return api_.metrics.text(gauges);
  }

  void reply(const char* type, std::string body) {
    reply_.emplace();
    reply_->head.content_type = type;
    if (route_->route == Route::page) {
      reply_->head.headers.emplace_back(
          "Content-Security-Policy",
          "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
          "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'");
    }
    reply_->body = std::move(body);
  }
  void reply_json(const Json& value) { reply("application/json", line_of(value)); }

  // The part of the path that matches '*', decoded.
  std::string rest_of_path() const {
    const std::optional<std::string> rest = name_in_path(path_.substr(std::string_view(route_->path).size() - 1));
    if (!rest) throw plain(400, "The URL has invalid percent-encoding.", "invalid_url");
    return *rest;
  }

  std::string shown_path() const { return path_.substr(0, 200); }

  void log(uint64_t bytes_sent, int status, double seconds) const {
    // Prompts, keys and URL queries are never logged.
    Json line = {{"time", utc_timestamp()}, {"id", id_},
                 {"peer", head_.peer},      {"method", head_.method.substr(0, 16)},
                 {"path", shown_path()},    {"status", status},
                 {"bytes", bytes_sent},     {"seconds", std::round(seconds * 1e6) / 1e6}};
    if (key_ >= 0) line["key"] = api_.keys.at(key_).name;
    if (!record_.model.empty()) line["model"] = record_.model.substr(0, 200);
    if (record_.prompt_tokens > 0) line["prompt_tokens"] = record_.prompt_tokens;
    if (record_.completion_tokens > 0) line["completion_tokens"] = record_.completion_tokens;
    if (record_.first_token_s) line["first_token_seconds"] = std::round(*record_.first_token_s * 1e6) / 1e6;
    if (!record_.failure.empty()) line["failure"] = record_.failure;
    write_log(api_.settings, line);
  }

  ApiContext& api_;
  RequestHead head_;
  double started_;
  std::string id_;
  std::string path_;  // without the query, still encoded
  const RouteInfo* route_ = &unknown_route;
  int key_ = -1;
  bool admitted_ = false;
  std::vector<std::pair<std::string, std::string>> headers_;  // added to whatever response this request gets
  std::optional<BufferedReply> reply_;
  std::unique_ptr<Work> work_;
  RequestRecord record_;
  bool given_ = false;
  bool cut_short_ = false;
  int status_ = 0;
};

}  // namespace

struct Api::State {
  ApiContext context;
};

Api::Api(ApiSettings settings, const ServedModel& model, infer::Service& service, AdapterList* adapters,
         MaskFactory* masks) {
  std::vector<ApiKey> keys = settings.keys;
  state_.reset(new State{{std::move(settings), model, service, adapters, masks, Keys(std::move(keys)), {}}});
}

Api::~Api() = default;

std::shared_ptr<Collective> Api::open(RequestHead head) {
  return std::make_shared<ApiExchange>(state_->context, std::move(head));
}

std::pair<ReplyHead, std::string> Api::refusal(int status, const std::string& peer) {
  const std::string id = make_id("req_");
  BufferedReply reply =
      reply_of(status == 503 && state_->context.draining ? shutting_down_error() : connection_error(status));
  reply.head.headers.emplace_back("X-Request-Id", id);
  state_->context.metrics.request("none", status, 0);
  write_log(state_->context.settings, {{"time", utc_timestamp()}, {"id", id}, {"peer", peer}, {"status", status}});
  return {std::move(reply.head), std::move(reply.body)};
}

void Api::drain() {
  state_->context.draining = true;
  state_->context.service.drain();
}

void Api::finish() {
  drain();
  state_->context.finishing = true;
}

void Api::set_keys(std::vector<ApiKey> keys) { state_->context.keys.replace(std::move(keys)); }

}  // namespace ingot::server
