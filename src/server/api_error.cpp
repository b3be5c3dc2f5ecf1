#include "server/api_error.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace ingot::server {

ApiError bad_field(std::string param, const char* code, std::string message) {
  ApiError error(400, std::move(message));
  error.param = std::move(param);
  error.code = code;
  return error;
}

ApiError model_not_found(const std::string& model) {
  ApiError error(404, fmt::format("The model '{}' does not exist; GET /v1/models lists those that do.", model));
  error.param = "model";
  error.code = "model_not_found";
  return error;
}

ApiError not_permitted(std::string message) {
  ApiError error(403, std::move(message));
  error.type = "permission_error";
  error.code = "insufficient_permissions";
  return error;
}

ApiError server_error(const char* code, std::string message) {
  ApiError error(500, std::move(message));
  error.type = "server_error";
  error.code = code;
  return error;
}

ApiError file_fault(const std::string& path) {
  return server_error(
      "model_file_fault",
      fmt::format(
          "The model file '{}' was truncated, changed or lost while it was served; restore it and restart the server.",
          path.substr(path.rfind('/') + 1)));
}

ApiError api_error(const Error& error, const std::string& param) {
  ApiError out(400, error.hint().empty() ? error.message() : error.message() + "; " + error.hint());
  if (!param.empty()) out.param = param;
  const auto report = [&](int status, const char* type, const char* code) {
    out.status = status;
    out.type = type;
    out.code = code;
    if (status == 429 || status == 503) out.retry_after_s = 1;
  };
  switch (error.kind()) {
    case ErrorKind::usage:
    case ErrorKind::corrupt: out.code = "invalid_value"; break;
    case ErrorKind::unsupported: out.code = "unsupported_value"; break;
    case ErrorKind::not_found: report(404, "invalid_request_error", "not_found"); break;
    case ErrorKind::resource: report(429, "requests", "rate_limit_exceeded"); break;
    case ErrorKind::unavailable: report(503, "server_error", "unavailable"); break;
    case ErrorKind::internal:
      out.status = 500;
      out.type = "server_error";
      out.message = "The server failed to process this request; see its log.";
      break;
  }
  return out;
}

std::string error_body(const ApiError& error) {
  using Json = nlohmann::ordered_json;
  Json inner = {{"message", error.message}, {"type", error.type}, {"param", nullptr}, {"code", nullptr}};
  if (error.param) inner["param"] = *error.param;
  if (error.code) inner["code"] = *error.code;
  const Json body = {{"error", inner}};
  return body.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace ingot::server
