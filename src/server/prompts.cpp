#include "server/prompts.h"

#include <fmt/format.h>

#include <random>

namespace ingot::server {

namespace {

// A template is the model's, and a model may come from anywhere.
constexpr text::jinja::RenderOptions template_limits{
    .max_steps = 2'000'000, .max_memory = size_t{1} << 26, .max_output = size_t{1} << 24, .now = {}};

void check_ids(const ServedModel& model, const Ids& ids, const std::string& param, int64_t room) {
  if (ids.empty()) throw bad_field(param, "invalid_value", "The prompt has no tokens.");
  for (const int32_t id : ids) {
    if (id < 0 || id >= model.vocab) {
      throw bad_field(param, "invalid_value",
                      fmt::format("Token id {} is outside the vocabulary of {}.", id, model.vocab));
    }
  }
  if (static_cast<int64_t>(ids.size()) + room > model.context) {
    throw bad_field(
        param, "context_length_exceeded",
        fmt::format("The {} has {} tokens; the context of {} {}.", room > 0 ? "prompt" : "input", ids.size(),
                    model.context, room > 0 ? "leaves no room for an answer" : "has no room for it"));
  }
}

}  // namespace

void check_model(const ApiContext& api, const std::string& model) {
  if (model == api.model.id) return;
  if (!api.adapters || !infer::is_adapter_name(model) || !api.adapters->has(model))
    throw model_not_found(model.substr(0, 200));
}

std::shared_ptr<const infer::HostAdapter> adapter_of(ApiContext& api, const std::string& model, RequestRecord& record) {
  check_model(api, model);
  if (model == api.model.id) return nullptr;
  try {
    return api.adapters->get(model);
  } catch (const Error& error) {
    record.failure = text_of(error);
    throw adapter_error(error, model, "model");
  }
}

ApiError adapter_error(const Error& error, const std::string& name, const char* param) {
  switch (error.kind()) {
    case ErrorKind::not_found: return model_not_found(name);
    case ErrorKind::resource:
      return bad_field(param, "invalid_value",
                       fmt::format("The adapter '{}' needs more memory than this server has for adapters.", name));
    case ErrorKind::unsupported:
      return bad_field(param, "unsupported_value",
                       fmt::format("The adapter '{}' is of a kind or rank that this server does not take.", name));
    case ErrorKind::internal: return api_error(error, param);
    case ErrorKind::usage:
    case ErrorKind::corrupt:
    case ErrorKind::unavailable: break;
  }
  return bad_field(param, "invalid_value", fmt::format("The adapter '{}' cannot be read.", name));
}

std::string render_chat(const ServedModel& model, std::string_view messages, std::string_view tools) {
  if (!model.chat) {
    throw bad_field("model", "unsupported_value",
                    fmt::format("The model '{}' has no chat template; use /v1/completions.", model.id));
  }
  text::ChatOptions options;
  options.add_generation_prompt = true;
  options.bos_token = model.bos_text;
  options.eos_token = model.eos_text;
  options.render = template_limits;
  try {
    return model.chat->render_json(messages, tools, options);
  } catch (const Error& error) {
    // What the template refuses is a matter of the messages; it may also be a bad one.
    throw bad_field("messages", "invalid_value", fmt::format("The model's chat template says: {}", error.message()));
  }
}

Ids encode(const ServedModel& model, std::string_view text, bool add_special_tokens, const std::string& param,
           int64_t room) {
  Ids ids = model.tokenizer->encode(text, {.add_special_tokens = add_special_tokens});
  check_ids(model, ids, param, room);
  return ids;
}

Ids encode(const ServedModel& model, const Prompt& prompt, const std::string& param, int64_t room) {
  if (const std::string* words = std::get_if<std::string>(&prompt)) return encode(model, *words, true, param, room);
  const Ids& ids = std::get<Ids>(prompt);
  check_ids(model, ids, param, room);
  return ids;
}

int64_t seed_of(const GenerationRequest& request) {
  if (request.seed) return *request.seed;
  std::random_device random;
  return static_cast<int64_t>(uint64_t{random()} << 32 | random());
}

infer::Request engine_request(const ServedModel& model, const GenerationRequest& request, const RequestRecord& record,
                              int64_t seed, int64_t index) {
  infer::Request out;
  out.cache_salt = static_cast<uint64_t>(int64_t{record.key} + 1);
  out.max_tokens = request.max_tokens.value_or(model.context);
  out.stop_ids = model.eos;
  infer::Sampling& sampling = out.sampling;
  sampling.temperature = request.temperature;
  sampling.top_k = request.top_k;
  sampling.top_p = request.top_p;
  sampling.min_p = request.min_p;
  sampling.repetition_penalty = request.repetition_penalty;
  sampling.presence_penalty = request.presence_penalty;
  sampling.frequency_penalty = request.frequency_penalty;
  for (const LogitBias& bias : request.logit_bias) {
    if (bias.id >= model.vocab) {
      throw bad_field("logit_bias", "invalid_value",
                      fmt::format("Token id {} is outside the vocabulary of {}.", bias.id, model.vocab));
    }
    sampling.logit_bias.push_back({bias.id, bias.bias});
  }
  sampling.top_logprobs = request.logprobs ? request.top_logprobs : 0;
  // Outputs of one request differ in their seeds; the first has the request's, as `ingot generate --seed`.
  sampling.seed = static_cast<uint64_t>(seed) + static_cast<uint64_t>(index) * 0x9E3779B97F4A7C15U;
  return out;
}

}  // namespace ingot::server
