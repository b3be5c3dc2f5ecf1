// One HTTP request through libcurl, without retry. Used by fetch.cpp only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace ingot {

struct HttpRequest {
  std::string url;
  std::vector<std::string> headers;
  uint64_t offset = 0;    // first byte wanted
  std::string validator;  // ETag or Last-Modified that the bytes before `offset` came with
  double connect_timeout_s = 20;
  double stall_timeout_s = 30;
  // Called before the first byte of a good answer: where the body starts (`offset`, or 0 when the server sends the
  // whole file again), the validator of this version, and its whole length (0: not told).
  std::function<void(uint64_t start, const std::string& validator, uint64_t total)> on_start;
  std::function<void(std::span<const std::byte>)> on_bytes;
  std::function<bool()> keep_going;  // asked at least once a second
};

enum class HttpOutcome { done, retry, failed, missing, stopped, stale_range };

struct HttpResult {
  HttpOutcome outcome = HttpOutcome::failed;
  std::string reason;        // for messages
  double retry_after_s = 0;  // as the server asked
};

// Exceptions of the callbacks end the transfer and come out here. Errors: unavailable when libcurl cannot start.
HttpResult http_get(const HttpRequest& request);

}  // namespace ingot
