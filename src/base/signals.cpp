#include "base/signals.h"

#include <signal.h>
#include <time.h>

#include <atomic>

#include "base/error.h"

namespace ingot {
namespace {

constexpr std::array stop_signals = {SIGINT, SIGTERM, SIGUSR1};
constexpr std::array ignored_signals = {SIGPIPE, SIGXFSZ};

// A handler has no argument of ours, so its state is global; StopSignal owns it and allows one owner.
std::atomic<bool> owned = false;
std::atomic<int> first_signal = 0;
std::atomic<int64_t> first_at = 0;  // ns of CLOCK_MONOTONIC
std::atomic<void (*)(int)> on_second = nullptr;
std::array<struct sigaction, stop_signals.size() + ignored_signals.size()> former;
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<int64_t>::is_always_lock_free &&
                  std::atomic<void (*)(int)>::is_always_lock_free,
              "a signal handler may not lock");

int64_t now_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);  // may be called in a handler
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

extern "C" void ingot_on_stop_signal(int number) {
  const int64_t now = now_ns();
  int none = 0;
  if (first_signal.load() == none) first_at = now;
  if (first_signal.compare_exchange_strong(none, number)) return;
  if (number != SIGINT && number == first_signal.load() && now - first_at.load() < 1'000'000'000) return;
  if (void (*second)(int) = on_second.load()) second(number);
}

}  // namespace

StopSignal::StopSignal(void (*second)(int signal)) {
  if (owned.exchange(true)) throw_error(ErrorKind::internal, "two StopSignal objects at a time");
  first_signal = 0;
  on_second = second;
  struct sigaction action{};
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  action.sa_handler = ingot_on_stop_signal;
  size_t slot = 0;
  for (const int number : stop_signals) ::sigaction(number, &action, &former[slot++]);
  action.sa_handler = SIG_IGN;
  for (const int number : ignored_signals) ::sigaction(number, &action, &former[slot++]);
}

StopSignal::~StopSignal() {
  size_t slot = 0;
  for (const int number : stop_signals) ::sigaction(number, &former[slot++], nullptr);
  for (const int number : ignored_signals) ::sigaction(number, &former[slot++], nullptr);
  on_second = nullptr;
  first_signal = 0;
  owned = false;
}

int StopSignal::number() const { return first_signal.load(std::memory_order_relaxed); }

}  // namespace ingot
