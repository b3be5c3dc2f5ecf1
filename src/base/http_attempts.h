// HTTP requests that are tried again when what went wrong may pass: connections that break, bodies that are cut short,
// 408, 425, 429 and 5xx. Used by fetch.cpp, store.cpp and s3_store.cpp only.
#pragma once

#include <functional>
#include <string>

#include "base/fetch.h"
#include "base/http_transfer.h"

namespace ingot {

struct Attempts {
  std::function<HttpResult()> once;
  std::function<uint64_t()> size;   // bytes that are there now: attempts that bring none are counted
  std::function<uint64_t()> total;  // of all bytes; 0: not known. For the progress
};

// Until the outcome is another than retry, or options.max_attempts in a row brought nothing. Between them it waits
// options.first_wait_s, doubled each time up to 30 s, of which a random half is left out, so that many ranks do not
// come back together; the server's Retry-After counts more. `shown` is for messages. Errors: unavailable when
// options.progress says stop.
struct AttemptsResult {
  HttpResult result;
  int attempts = 0;
};
AttemptsResult attempt(const std::string& shown, const FetchOptions& options, const Attempts& attempts);

// Errors for an outcome that is no success: not_found (missing), unavailable.
[[noreturn]] void throw_http(const std::string& shown, const AttemptsResult& failed);
[[noreturn]] void throw_stopped(const std::string& shown);

// options.progress at most ten times a second.
class ProgressTeller {
 public:
  explicit ProgressTeller(const FetchOptions& options) : options_(options) {}
  bool keep_going(uint64_t done, uint64_t total, bool always = false);

 private:
  const FetchOptions& options_;
  double last_ = -1;
};

}  // namespace ingot
