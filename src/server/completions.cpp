// /v1/chat/completions, /v1/responses and /v1/completions.
#include <fmt/format.h>

#include <ctime>
#include <random>

#include "base/function_ref.h"
#include "server/adapters.h"
#include "server/ids.h"
#include "server/prompts.h"
#include "server/reply.h"

namespace ingot::server {

namespace {

// Turns outputs into an answer, whole or streamed.
class CompletionWork : public Work {
 public:
  CompletionWork(std::unique_ptr<Outputs> outputs, std::unique_ptr<Reply> reply, bool stream, int64_t prompt_tokens)
      : outputs_(std::move(outputs)), reply_(std::move(reply)), stream_(stream), prompt_tokens_(prompt_tokens) {}

  ReplyPart poll(RequestRecord& record) override {
    ReplyPart part;
    if (ended_) {
      part.end = true;
      return part;
    }
    std::vector<OutputDelta> pieces = outputs_->take();
    record.completion_tokens = outputs_->completion_tokens();
    if (outputs_->overflowed()) {
      record.failure = "the client read too slowly";
      part.broken = true;
      return part;
    }
    if (pieces.empty()) return part;
    std::string events;
    if (stream_ && !head_sent_) events = reply_->begin();
    events += reply_->push(std::move(pieces));
    const Usage usage{prompt_tokens_, outputs_->completion_tokens(), outputs_->cached_tokens()};
    ended_ = outputs_->ended();
    if (stream_) {
      if (!head_sent_) part.head = stream_head();
      part.bytes = std::move(events);
      if (ended_) part.bytes += reply_->end(usage);
    } else if (ended_) {
      part.head = ReplyHead();
      part.bytes = reply_->body(*outputs_, usage);
    }
    head_sent_ = head_sent_ || part.head.has_value();
    part.end = ended_;
    return part;
  }

  std::string failure(const std::string& error) override { return reply_->failure(error); }

 private:
  static ReplyHead stream_head() {
    ReplyHead head;
    head.content_type = "text/event-stream";
    head.streamed = true;
    head.headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};
    return head;
  }

  std::unique_ptr<Outputs> outputs_;
  std::unique_ptr<Reply> reply_;
  bool stream_;
  int64_t prompt_tokens_;
  bool head_sent_ = false;
  bool ended_ = false;
};

bool demands_call(const ChatRequest& request) { return request.tool_choice == ToolChoice::required; }

// The constraint on the output: a required tool call is a schema too.
ConstraintField demanded_of(const ChatRequest& request) {
  if (!demands_call(request)) return request.format;
  if (request.format.constraint.kind != Constraint::Kind::none) {
    throw bad_field(
        request.format.param, "invalid_value",
        fmt::format("'{}' cannot be combined with a 'tool_choice' that requires a call.", request.format.param));
  }
  if (request.ignore_eos) {
    throw bad_field("ignore_eos", "invalid_value",
                    "'ignore_eos' cannot be combined with a 'tool_choice' that requires a call.");
  }
  std::vector<std::pair<std::string, std::string>> tools;
  for (const Tool& tool : request.tool_list) tools.emplace_back(tool.name, tool.parameters);
  // With the members in order, the name comes first, so that ToolReader can read a call that was cut.
  const bool strict = std::ranges::any_of(request.tool_list, &Tool::strict);
  return {{Constraint::Kind::json_schema, call_schema(tools), {}, strict, true}, "tools"};
}

// Called for each output.
std::shared_ptr<infer::TokenMask> mask_of(ApiContext& api, const ConstraintField& field) {
  if (field.constraint.kind == Constraint::Kind::none) return nullptr;
  if (!api.masks) {
    throw bad_field(field.param, "unsupported_parameter",
                    fmt::format("'{}' is not supported: this server cannot constrain outputs.", field.param));
  }
  try {
    return api.masks->mask(field.constraint);
  } catch (const Error& error) {
    // A retry does not help with a schema that is too large: report it as usage.
    const bool too_large = error.kind() == ErrorKind::resource;
    throw api_error(too_large ? Error(ErrorKind::usage, error.message(), error.hint()) : error, field.param);
  }
}

ToolForm form_of(const ServedModel& model, const ChatRequest& request) {
  switch (request.tool_choice) {
    case ToolChoice::none: return ToolForm::none;
    case ToolChoice::required: return ToolForm::forced;
    case ToolChoice::automatic: return model.tool_call_tags ? ToolForm::tagged : ToolForm::whole;
  }
  return ToolForm::none;
}

ReplyInfo info_of(const ApiContext& api, const TextRequest& request, const char* prefix) {
  ReplyInfo info;
  info.id = make_id(prefix);
  info.model = request.model;
  info.fingerprint = api.model.fingerprint;
  info.created = static_cast<int64_t>(std::time(nullptr));
  info.tokenizer = api.model.tokenizer;
  return info;
}

void check_token_ids(const ServedModel& model, const TextRequest& request) {
  for (const infer::LogitBias& bias : request.sampling.logit_bias) check_id(model, bias.id, "logit_bias");
  for (const int32_t id : request.stop_ids) check_id(model, id, "stop_token_ids");
}

// A key that may not change what is served may not raise its priority either.
void check_priority(const ApiContext& api, const TextRequest& request, const RequestRecord& record) {
  if (request.priority <= 0 || record.key < 0 || api.keys.at(record.key).admin) return;
  ApiError error = not_permitted("This key may not ask for a 'priority' above 0.");
  error.param = "priority";
  throw error;
}

// The whole answer is in memory until it is sent, so the number of its log-probabilities is limited.
void check_logprobs(const ServedModel& model, const TextRequest& request, int64_t outputs, const char* param) {
  if (!request.logprobs) return;
  const int64_t tokens = std::min(request.max_tokens.value_or(model.context), model.context);
  const int64_t numbers = outputs * tokens * (1 + request.sampling.top_logprobs);
  if (numbers <= max_answer_numbers) return;
  throw bad_field(param, "invalid_value",
                  fmt::format("{} outputs of up to {} tokens with {} log-probabilities each are {}; a response may "
                              "have at most {}: ask for fewer, set a smaller 'max_tokens', or stream.",
                              outputs, tokens, 1 + request.sampling.top_logprobs, numbers, max_answer_numbers));
}

// The same for `tokens` of echoed prompts, also when streaming: they are all in memory before a slow client has read
// any.
void check_echoed(const TextRequest& request, int64_t tokens) {
  const int64_t numbers = tokens * (1 + request.sampling.top_logprobs);
  if (numbers <= max_answer_numbers) return;
  throw bad_field("prompt", "invalid_value",
                  fmt::format("{} echoed tokens with {} log-probabilities each are {}; a response may have at most {}: "
                              "send fewer prompts per request.",
                              tokens, 1 + request.sampling.top_logprobs, numbers, max_answer_numbers));
}

// The request's seed, or a random one.
int64_t seed_of(const TextRequest& request) {
  if (request.seed) return *request.seed;
  std::random_device random;
  return static_cast<int64_t>(uint64_t{random()} << 32 | random());
}

// The engine's request for one output, without its prompt. `index` is the output's index, which the seed depends on.
// Only requests of the same key share cached pages: response times must not reveal what others have asked.
infer::Request engine_request(const ServedModel& model, const TextRequest& request, const RequestRecord& record,
                              int64_t seed, int64_t index) {
  infer::Request out;
  out.owner = out.cache_salt = owner_of(record);
  out.max_tokens = request.max_tokens.value_or(model.context);
  if (!request.ignore_eos) out.stop_ids = model.eos;
  out.stop_ids.insert(out.stop_ids.end(), request.stop_ids.begin(), request.stop_ids.end());
  out.priority = static_cast<int>(request.priority);
  out.deadline = request.deadline;
  out.sampling = request.sampling;
  // Outputs of one request have different seeds; the first has the request's, as in `ingot generate --seed`.
  out.sampling.seed = static_cast<uint64_t>(seed) + static_cast<uint64_t>(index) * 0x9E3779B97F4A7C15U;
  return out;
}

OutputSettings settings_of(const ApiContext& api, const TextRequest& request, int64_t per_prompt) {
  OutputSettings settings;
  settings.stops = request.stop;
  settings.logprobs = request.logprobs;
  settings.per_prompt = static_cast<size_t>(per_prompt);
  settings.queue = api.settings.slow_outputs;
  return settings;
}

// Starts the outputs of a conversation. `make_reply` makes the formatter of the answer; `held`: it keeps all outputs to
// the end.
std::unique_ptr<Work> start_conversation(ApiContext& api, const ChatRequest& request, RequestRecord& record, Wake wake,
                                         bool held, FunctionRef<std::unique_ptr<Reply>(ToolForm)> make_reply) {
  record.model = request.model;
  check_priority(api, request, record);
  check_model(api, request.model);
  if (held) check_logprobs(api.model, request, request.n, "top_logprobs");
  const bool with_tools = request.tool_choice != ToolChoice::none;
  const text::ChatText text = render_chat(api.model, request.messages, with_tools ? request.tools : "",
                                          request.template_variables, request.prompt_param);
  const infer::PromptIds prompt = encode(api.model, text, request.prompt_param);
  record.prompt_tokens = prompt.size();
  const std::shared_ptr<const infer::HostAdapter> adapter = adapter_of(api, request.model, record);
  check_token_ids(api.model, request);
  const ConstraintField demanded = demanded_of(request);
  const int64_t seed = seed_of(request);
  std::vector<infer::Request> requests;
  for (int64_t i = 0; i < request.n; ++i) {
    requests.push_back(engine_request(api.model, request, record, seed, i));
    requests.back().prompt = prompt;
    requests.back().adapter = adapter;
    requests.back().mask = mask_of(api, demanded);
  }
  const ToolForm form = form_of(api.model, request);
  OutputSettings settings = settings_of(api, request, request.n);
  // Stop after the first call.
  if (!request.parallel_tool_calls && form == ToolForm::tagged) settings.stops.emplace_back(tool_close_tag);
  auto outputs =
      std::make_unique<Outputs>(api.service, *api.model.tokenizer, std::move(requests), settings, std::move(wake));
  return std::make_unique<CompletionWork>(std::move(outputs), make_reply(form), request.stream, record.prompt_tokens);
}

}  // namespace

std::unique_ptr<Work> start_chat(ApiContext& api, std::string_view body, RequestRecord& record, Wake wake) {
  const ChatRequest request = parse_chat(body);
  return start_conversation(api, request, record, std::move(wake), !request.stream, [&](ToolForm form) {
    return chat_reply(request, form, info_of(api, request, "chatcmpl-"));
  });
}

std::unique_ptr<Work> start_responses(ApiContext& api, std::string_view body, RequestRecord& record, Wake wake) {
  const ResponsesRequest request = parse_responses(body);
  // The last event of the stream repeats the whole answer.
  return start_conversation(api, request, record, std::move(wake), true, [&](ToolForm form) {
    return responses_reply(request, form, info_of(api, request, "resp_"));
  });
}

std::unique_ptr<Work> start_completion(ApiContext& api, std::string_view body, RequestRecord& record, Wake wake) {
  const CompletionRequest request = parse_completion(body);
  record.model = request.model;
  check_priority(api, request, record);
  if (!request.stream) {
    check_logprobs(api.model, request, static_cast<int64_t>(request.prompts.size()) * request.best_of, "logprobs");
  }
  const std::shared_ptr<const infer::HostAdapter> adapter = adapter_of(api, request.model, record);
  check_token_ids(api.model, request);
  const int64_t seed = seed_of(request);
  std::vector<infer::Request> requests;
  std::vector<EchoedPrompt> echoed;
  const bool scored = request.echo && request.logprobs;
  for (const Prompt& prompt : request.prompts) {
    const Ids ids = encode(api.model, prompt, "prompt", request.max_tokens == 0 ? 0 : 1);
    record.prompt_tokens += static_cast<int64_t>(ids.size());
    if (scored) check_echoed(request, record.prompt_tokens * request.best_of);
    if (request.echo) echoed.push_back(echoed_prompt(api.model, prompt, ids, scored));
    const infer::PromptIds shared = ids;
    for (int64_t i = 0; i < request.best_of; ++i) {
      requests.push_back(engine_request(api.model, request, record, seed, i));
      requests.back().prompt = shared;
      requests.back().adapter = adapter;
      requests.back().prompt_logprobs = scored;
      requests.back().mask = mask_of(api, request.format);
    }
  }
  OutputSettings settings = settings_of(api, request, request.best_of);
  // Clients that score texts request one token and drop the last log-probability, so the stop id must be returned if it
  // ends the output.
  settings.report_end = scored;
  auto outputs =
      std::make_unique<Outputs>(api.service, *api.model.tokenizer, std::move(requests), settings, std::move(wake));
  return std::make_unique<CompletionWork>(std::move(outputs),
                                          completion_reply(request, std::move(echoed), info_of(api, request, "cmpl-")),
                                          request.stream, record.prompt_tokens);
}

}  // namespace ingot::server
