// One HTTP request through libcurl, without retries (http_attempts.h adds them). Used inside storage only.
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
  std::string method = "GET";  // GET, HEAD, PUT, POST, DELETE
  std::vector<std::string> headers;
  std::span<const std::byte> body;  // for PUT and POST
  bool redirects = true;            // follow redirects
  bool path_as_is = false;          // send '.' and '..' as they are, instead of resolving them
  uint64_t offset = 0;              // first byte requested
  uint64_t length = 0;              // bytes requested from there; 0: all
  std::string validator;            // ETag or Last-Modified of the version that the bytes before `offset` are from
  double connect_timeout_s = 20;
  double stall_timeout_s = 30;
  // Called before the first byte of a successful response: with the position at which the body starts (`offset`, or 0
  // when the server sends the whole file again), the validator of this version, and the total length (0: unknown). Each
  // of the three callbacks may be empty.
  std::function<void(uint64_t start, const std::string& validator, uint64_t total)> on_start;
  std::function<void(std::span<const std::byte>)> on_bytes;
  std::function<bool()> keep_going;  // polled at least once a second; false stops the transfer
};

enum class HttpOutcome { done, retry, failed, missing, stopped, stale_range };

struct HttpResult {
  HttpOutcome outcome = HttpOutcome::failed;
  std::string reason;        // for messages
  double retry_after_s = 0;  // the server's Retry-After
  long status = 0;           // 0: no response
  // The response headers of these names (x-amz-...); empty if absent.
  std::string etag, last_modified, bucket_region, checksum_sha256;
  std::string error_code;  // S3's error code in an unsuccessful response
  uint64_t length = 0;     // the response's Content-Length
};

// Exceptions of the callbacks end the transfer and are rethrown. Errors: unavailable when libcurl cannot start.
HttpResult http_perform(const HttpRequest& request);

}  // namespace ingot
