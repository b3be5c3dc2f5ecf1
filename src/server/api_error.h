// Errors in the format of OpenAI's API: {"error": {"message", "type", "param", "code"}}.
#pragma once

#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"

namespace ingot::server {

// Thrown while a request is parsed or answered; becomes the answer.
struct ApiError : std::exception {
  int status = 400;
  std::string message;
  std::string type = "invalid_request_error";
  std::optional<std::string> param;  // the request's field
  std::optional<std::string> code;
  std::optional<int> retry_after_s;

  ApiError(int http_status, std::string what_is_wrong) : status(http_status), message(std::move(what_is_wrong)) {}
  const char* what() const noexcept override { return message.c_str(); }
};

// 400: a field of the request that is invalid or not supported. `code`: invalid_value, invalid_type,
// unsupported_parameter, ...
ApiError bad_field(std::string param, const char* code, std::string message);
ApiError model_not_found(const std::string& model);

// 403: the request's API key does not allow it.
ApiError not_permitted(std::string message);
// 500 with its cause; clients distinguish causes by `code`.
ApiError server_error(const char* code, std::string message);
// 500: a file of the model has changed since it was opened. The message has the file's name without its folders.
ApiError file_fault(const std::string& path);

// The answer for an Error. `param`: the field that it is about, "" if not known. Internal errors get a generic message:
// their text is for the log only.
ApiError api_error(const Error& error, const std::string& param);

// {"error": {...}} with all four keys.
std::string error_body(const ApiError& error);

}  // namespace ingot::server
