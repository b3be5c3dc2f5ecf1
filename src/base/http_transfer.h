// One HTTP request through libcurl, without retry. Used by http_attempts.cpp only.
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
  std::span<const std::byte> body;  // of PUT and POST
  bool redirects = true;            // are followed
  bool path_as_is = false;          // '.' and '..' are names as others; else they are resolved
  uint64_t offset = 0;              // first byte wanted
  uint64_t length = 0;              // bytes wanted from there; 0: all
  std::string validator;            // ETag or Last-Modified that the bytes before `offset` came with
  double connect_timeout_s = 20;
  double stall_timeout_s = 30;
  // Called before the first byte of a good answer: where the body starts (`offset`, or 0 when the server sends the
  // whole file again), the validator of this version, and its whole length (0: not told). May be empty, as all three.
  std::function<void(uint64_t start, const std::string& validator, uint64_t total)> on_start;
  std::function<void(std::span<const std::byte>)> on_bytes;
  std::function<bool()> keep_going;  // asked at least once a second
};

enum class HttpOutcome { done, retry, failed, missing, stopped, stale_range };

struct HttpResult {
  HttpOutcome outcome = HttpOutcome::failed;
  std::string reason;        // for messages
  double retry_after_s = 0;  // as the server asked
  long status = 0;           // 0: there was no answer
  // Of headers of that name (x-amz-...); empty without.
  std::string etag, last_modified, bucket_region, checksum_sha256;
  std::string error_code;  // S3's, of an answer that is no success
  uint64_t length = 0;     // of the whole body, as the headers say
};

// Exceptions of the callbacks end the transfer and come out here. Errors: unavailable when libcurl cannot start.
HttpResult http_perform(const HttpRequest& request);

}  // namespace ingot
