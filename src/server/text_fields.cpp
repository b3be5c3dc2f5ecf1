#include "server/text_fields.h"

#include <fmt/format.h>

#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/json.h"

namespace ingot::server {

namespace {

constexpr size_t max_stops = 4;
constexpr size_t max_stop_bytes = 1024;
constexpr size_t max_stop_ids = 1024;

std::vector<std::string> stops_of(Fields& fields) {
  const Json* value = fields.any("stop");
  if (!value) return {};
  std::vector<std::string> stops;
  if (value->is_string()) {
    stops.push_back(value->get<std::string>());
  } else {
    const Json* list = fields.array("stop", 0, max_stops);
    for (size_t i = 0; i < list->size(); ++i) stops.push_back(text_at((*list)[i], fmt::format("stop[{}]", i)));
  }
  for (const std::string& stop : stops) {
    if (stop.empty() || stop.size() > max_stop_bytes) {
      throw bad_field("stop", "invalid_value",
                      fmt::format("A stop string must have from 1 to {} bytes.", max_stop_bytes));
    }
  }
  return stops;
}

std::vector<infer::LogitBias> bias_of(Fields& fields) {
  std::vector<infer::LogitBias> biases;
  const Json* map = fields.object("logit_bias");
  if (!map) return biases;
  for (const auto& [key, value] : map->items()) {
    infer::LogitBias bias;
    const auto [end, failed] = std::from_chars(key.data(), key.data() + key.size(), bias.id);
    if (failed != std::errc() || end != key.data() + key.size() || bias.id < 0) {
      throw bad_field("logit_bias", "invalid_value", "The keys of 'logit_bias' must be token ids.");
    }
    const double number = value.is_number() ? value.get<double>() : std::numeric_limits<double>::quiet_NaN();
    if (!(number >= -100 && number <= 100)) {
      throw bad_field("logit_bias", "invalid_value", "The values of 'logit_bias' must be numbers from -100 to 100.");
    }
    bias.bias = static_cast<float>(number);
    biases.push_back(bias);
  }
  return biases;
}

void read_ends(Fields& fields, TextRequest& request) {
  if (const Json* ids = fields.array("stop_token_ids", 0, max_stop_ids)) {
    for (size_t i = 0; i < ids->size(); ++i)
      request.stop_ids.push_back(token_id_at((*ids)[i], fmt::format("stop_token_ids[{}]", i)));
  }
  request.ignore_eos = fields.boolean("ignore_eos").value_or(false);
  if (ConstraintField format = constraint_of(fields); format.constraint.kind != Constraint::Kind::none) {
    set_constraint(request, std::move(format));
  }
}

Json body_json(std::string_view body) {
  try {
    return parse_json(body);
  } catch (const Error& error) {
    ApiError bad(400, fmt::format("The body could not be read: {}.", error.message()));
    bad.code = "invalid_json";
    throw bad;
  }
}

}  // namespace

void set_constraint(TextRequest& request, ConstraintField format) {
  if (request.format.constraint.kind != Constraint::Kind::none) {
    throw bad_field(
        format.param, "invalid_value",
        fmt::format("'{}' and '{}' both constrain the output; give only one.", request.format.param, format.param));
  }
  if (request.ignore_eos) {
    throw bad_field("ignore_eos", "invalid_value",
                    fmt::format("'ignore_eos' cannot be combined with '{}', whose output must end.", format.param));
  }
  request.format = std::move(format);
}

void read_body(std::string_view body, const std::function<void(Fields&)>& read) {
  const Json json = body_json(body);
  Fields fields(json, "");
  read(fields);
  fields.finish();
}

int32_t token_id_at(const Json& value, const std::string& path) {
  if (!value.is_number_integer()) {
    throw bad_field(path, "invalid_type", fmt::format("'{}' must be a token id.", path));
  }
  const bool beyond = value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{INT32_MAX};
  const int64_t id = beyond ? -1 : value.get<int64_t>();
  if (id < 0 || id > INT32_MAX) {
    throw bad_field(path, "invalid_value", fmt::format("'{}' is not a token id.", path));
  }
  return static_cast<int32_t>(id);
}

std::string template_variables_of(Fields& fields) {
  const Json* variables = fields.object("chat_template_kwargs");
  if (!variables) return {};
  for (const char* name : {"messages", "tools", "add_generation_prompt", "bos_token", "eos_token"}) {
    if (!variables->contains(name)) continue;
    throw bad_field(fmt::format("chat_template_kwargs.{}", name), "invalid_value",
                    fmt::format("'{}' cannot be set by 'chat_template_kwargs'.", name));
  }
  return variables->empty() ? std::string() : variables->dump();
}

void read_text_request(Fields& fields, TextRequest& request) {
  request.model = fields.needed_text("model");
  request.sampling.temperature = fields.number("temperature", 0, 2).value_or(1);
  request.sampling.top_p = fields.number("top_p", 0, 1).value_or(1);
  request.sampling.top_k = fields.integer("top_k", -1, 1'000'000).value_or(0);
  if (request.sampling.top_k < 0) request.sampling.top_k = 0;  // some clients mean "all" by -1
  request.sampling.min_p = fields.number("min_p", 0, 1).value_or(0);
  request.sampling.repetition_penalty = fields.number("repetition_penalty", 0.01, 100).value_or(1);
  request.sampling.presence_penalty = fields.number("presence_penalty", -2, 2).value_or(0);
  request.sampling.frequency_penalty = fields.number("frequency_penalty", -2, 2).value_or(0);
  request.sampling.logit_bias = bias_of(fields);
  constexpr int64_t min_seed = std::numeric_limits<int64_t>::min();
  request.seed = fields.integer("seed", min_seed, std::numeric_limits<int64_t>::max());
  request.stop = stops_of(fields);
  read_ends(fields, request);
  request.priority = fields.integer("priority", -100, 100).value_or(0);
  if (const std::optional<int64_t> ms = fields.integer("deadline_ms", 1, 86'400'000)) {
    request.deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(*ms);
  }
  request.stream = fields.boolean("stream").value_or(false);
  fields.ignore({"user", "safety_identifier", "service_tier", "prompt_cache_key"});
}

}  // namespace ingot::server
