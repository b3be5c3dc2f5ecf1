// HTTP requests that are retried after failures that may be temporary: broken connections, truncated bodies, 408, 425,
// 429 and 5xx. Used inside storage only.
#pragma once

#include <functional>
#include <string>

#include "storage/fetch.h"
#include "storage/http_transfer.h"

namespace ingot {

struct Attempts {
  std::function<HttpResult()> once;
  std::function<uint64_t()> size;   // bytes received so far: only consecutive attempts without new bytes are counted
  std::function<uint64_t()> total;  // total bytes, for the progress; 0: unknown
};

// Repeats `attempts.once` until its outcome is not `retry`, or until options.max_attempts attempts in a row have
// received no new bytes. Between attempts it waits options.first_wait_s, doubled each time up to 30 s; up to half of a
// wait is randomly left out, so that many ranks do not retry at the same moment. A longer Retry-After of the server is
// used instead, up to 60 s. `address`, without its user and its query, is for messages. Errors: unavailable
// when options.progress returns false.
struct AttemptsResult {
  HttpResult result;
  int attempts = 0;
};
AttemptsResult attempt(const std::string& address, const FetchOptions& options, const Attempts& attempts);

// Throws the error of an unsuccessful outcome: not_found (missing), else unavailable.
[[noreturn]] void throw_http(const std::string& address, const AttemptsResult& failed);
[[noreturn]] void throw_stopped(const std::string& address);

// Calls options.progress at most ten times a second, unless `always`.
class ProgressReporter {
 public:
  explicit ProgressReporter(const FetchOptions& options) : options_(options) {}
  bool keep_going(uint64_t done, uint64_t total, bool always = false);

 private:
  const FetchOptions& options_;
  double last_ = -1;
};

}  // namespace ingot
