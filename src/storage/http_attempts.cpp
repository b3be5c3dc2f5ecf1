#include "storage/http_attempts.h"

#include <algorithm>
#include <chrono>
#include <random>
#include <thread>

#include "base/clock.h"
#include "base/error.h"

namespace ingot {

bool ProgressReporter::keep_going(uint64_t done, uint64_t total, bool always) {
  if (!options_.progress) return true;
  const double now = steady_seconds();
  if (!always && now - last_ < 0.1) return true;
  last_ = now;
  return options_.progress(done, total);
}

void throw_stopped(const std::string& address) {
  throw_hint(ErrorKind::unavailable, "run the same command again; it resumes where it stopped", "{}: stopped", address);
}

void throw_http(const std::string& address, const AttemptsResult& failed) {
  const HttpResult& result = failed.result;
  if (result.outcome == HttpOutcome::missing) {
    throw_hint(ErrorKind::not_found, "check the name", "{}: {}", address, result.reason);
  }
  std::string hint = "check the address, the network and the proxy settings";
  if (failed.attempts > 1) hint += fmt::format("; {} attempts were made", failed.attempts);
  throw_hint(ErrorKind::unavailable, hint, "{}: {}", address, result.reason);
}

AttemptsResult attempt(const std::string& address, const FetchOptions& options, const Attempts& attempts) {
  ProgressReporter reporter(options);
  std::minstd_rand random(std::random_device{}());
  uint64_t furthest = attempts.size();
  int idle = 0;
  double wait = options.first_wait_s;
  AttemptsResult result;
  for (;;) {
    result.result = attempts.once();
    ++result.attempts;
    if (result.result.outcome == HttpOutcome::stopped) throw_stopped(address);
    if (result.result.outcome != HttpOutcome::retry) return result;
    if (attempts.size() > furthest) {
      furthest = attempts.size();
      idle = 0;
      wait = options.first_wait_s;
    }
    if (++idle >= options.max_attempts) return result;
    const double drawn = std::uniform_real_distribution<double>(wait / 2, wait)(random);
    const double until = steady_seconds() + std::min(std::max(drawn, result.result.retry_after_s), 60.0);
    while (steady_seconds() < until) {
      if (!reporter.keep_going(attempts.size(), attempts.total())) throw_stopped(address);
      std::this_thread::sleep_for(std::chrono::duration<double>(std::clamp(until - steady_seconds(), 0.0, 0.05)));
    }
    wait = std::min(wait * 2, 30.0);
  }
}

}  // namespace ingot
