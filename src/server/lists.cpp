// Routes that answer at once: models, adapters, tokens.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "server/prompts.h"
#include "server/reply_json.h"

namespace ingot::server {

namespace {

using Json = nlohmann::ordered_json;

Json model_json(const std::string& id, int64_t created) {
  return {{"id", id}, {"object", "model"}, {"created", created}, {"owned_by", "ingot"}};
}

AdapterList& adapters_of(ApiContext& api) {
  if (api.adapters) return *api.adapters;
  ApiError error(404, "This server was started without --adapters.");
  error.code = "not_found";
  throw error;
}

}  // namespace

std::string list_models(ApiContext& api) {
  Json data = Json::array({model_json(api.model.id, api.model.created)});
  if (api.adapters) {
    for (const AdapterEntry& entry : api.adapters->entries()) data.push_back(model_json(entry.name, entry.created));
  }
  return line_of({{"object", "list"}, {"data", std::move(data)}});
}

std::string one_model(ApiContext& api, const std::string& id) {
  if (id == api.model.id) return line_of(model_json(id, api.model.created));
  if (api.adapters) {
    for (const AdapterEntry& entry : api.adapters->entries()) {
      if (entry.name == id) return line_of(model_json(id, entry.created));
    }
  }
  throw model_not_found(id.substr(0, 200));
}

std::string tokenize(ApiContext& api, std::string_view body, RequestRecord& record) {
  const TokenizeRequest request = parse_tokenize(body);
  if (request.model) check_model(api, *request.model);
  record.model = request.model.value_or(api.model.id);
  const Ids ids =
      request.prompt
          ? api.model.tokenizer->encode(*request.prompt, {.add_special_tokens = request.add_special_tokens})
          : api.model.tokenizer->encode(render_chat(api.model, request.messages, ""), {.add_special_tokens = false});
  return line_of({{"tokens", ids}, {"count", ids.size()}, {"max_model_len", api.model.context}});
}

std::string detokenize(ApiContext& api, std::string_view body, RequestRecord& record) {
  const DetokenizeRequest request = parse_detokenize(body);
  if (request.model) check_model(api, *request.model);
  record.model = request.model.value_or(api.model.id);
  for (const int32_t id : request.tokens) {
    if (id >= api.model.vocab) {
      throw bad_field("tokens", "invalid_value",
                      fmt::format("Token id {} is outside the vocabulary of {}.", id, api.model.vocab));
    }
  }
  return line_of({{"prompt", api.model.tokenizer->decode(request.tokens)}});
}

std::string list_adapters(ApiContext& api) {
  Json data = Json::array();
  if (api.adapters) {
    for (const AdapterEntry& entry : api.adapters->entries()) {
      data.push_back({{"id", entry.name},
                      {"object", "adapter"},
                      {"created", entry.created},
                      {"base", api.model.id},
                      {"rank", entry.rank > 0 ? Json(entry.rank) : Json()},
                      {"resident", entry.resident}});
    }
  }
  return line_of({{"object", "list"}, {"data", std::move(data)}});
}

std::string add_adapter(ApiContext& api, std::string_view body, RequestRecord& record) {
  const AdapterRequest request = parse_adapter(body);
  AdapterList& adapters = adapters_of(api);
  if (request.name == api.model.id) {
    throw bad_field("name", "invalid_value", "An adapter cannot have the model's own name.");
  }
  try {
    adapters.add(request.name);
  } catch (const Error& error) {
    record.failure = text_of(error);
    ApiError refused = adapter_error(error, request.name, "name");
    if (error.kind() == ErrorKind::not_found) {
      refused.message = fmt::format("There is no adapter '{}' below the server's --adapters.", request.name);
      refused.param = "name";
      refused.code = "not_found";
    }
    throw refused;
  }
  return line_of({{"id", request.name}, {"object", "adapter"}, {"base", api.model.id}});
}

std::string remove_adapter(ApiContext& api, const std::string& name, const char* object) {
  AdapterList& adapters = adapters_of(api);
  if (!infer::is_adapter_name(name) || !adapters.has(name)) throw model_not_found(name.substr(0, 200));
  adapters.remove(name);
  return line_of({{"id", name}, {"object", object}, {"deleted", true}});
}

}  // namespace ingot::server
