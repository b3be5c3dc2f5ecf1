#include "server/adapters.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "server/reply_json.h"

namespace ingot::server {

namespace {

using Json = nlohmann::ordered_json;

AdapterList& adapters_of(ApiContext& api) {
  if (api.adapters) return *api.adapters;
  ApiError error(404, "This server was started without --adapters.");
  error.code = "not_found";
  throw error;
}

// The answer for an adapter that cannot be used. It names no files: clients need not know where the server keeps them.
// `param` is the field with the adapter's name.
ApiError adapter_error(const Error& error, const std::string& name, const char* param) {
  switch (error.kind()) {
    case ErrorKind::not_found: return model_not_found(name);
    case ErrorKind::resource:
      return bad_field(param, "invalid_value",
                       fmt::format("The adapter '{}' needs more memory than this server has for adapters.", name));
    case ErrorKind::unsupported:
      return bad_field(param, "unsupported_value",
                       fmt::format("The adapter '{}' has a kind or rank that this server does not support.", name));
    case ErrorKind::unavailable:
      return api_error(
          Error(ErrorKind::unavailable, fmt::format("The adapter '{}' is temporarily unavailable; try again.", name)),
          param);
    case ErrorKind::internal: return api_error(error, param);
    case ErrorKind::usage:
    case ErrorKind::corrupt: break;
  }
  return bad_field(param, "invalid_value", fmt::format("The adapter '{}' cannot be read.", name));
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
    throw bad_field("name", "invalid_value", "An adapter cannot have the name of the served model.");
  }
  try {
    adapters.add(request.name);
  } catch (const Error& error) {
    record.failure = text_of(error);
    ApiError refused = adapter_error(error, request.name, "name");
    if (error.kind() == ErrorKind::not_found) {
      refused.message = fmt::format("There is no adapter '{}' in the server's --adapters folder.", request.name);
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
