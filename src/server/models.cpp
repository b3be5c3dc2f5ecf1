// GET /v1/models and /v1/models/{id}.
#include <nlohmann/json.hpp>

#include "server/reply_json.h"
#include "server/routes.h"

namespace ingot::server {

namespace {

using Json = nlohmann::ordered_json;

Json model_json(const std::string& id, int64_t created) {
  return {{"id", id}, {"object", "model"}, {"created", created}, {"owned_by", "ingot"}};
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

}  // namespace ingot::server
