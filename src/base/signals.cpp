#include "base/signals.h"

#include <signal.h>
#include <time.h>

#include <atomic>
#include <cstdint>

#include "base/error.h"

namespace ingot {
namespace {

// A signal handler has no user argument, so its state is global. It belongs to the only StopSignal that exists.
std::atomic<bool> owned = false;
std::atomic<int> first_signal = 0;
std::atomic<int64_t> first_at = 0;  // ns of CLOCK_MONOTONIC
std::atomic<void (*)(int)> on_second = nullptr;
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<int64_t>::is_always_lock_free &&
                  std::atomic<void (*)(int)>::is_always_lock_free,
              "a signal handler may not lock");

int64_t now_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);  // async-signal-safe
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

std::atomic<bool> reload_owned = false;
std::atomic<bool> reload_wanted = false;

extern "C" void ingot_on_reload_signal(int) { reload_wanted = true; }

extern "C" void ingot_on_stop_signal(int number) {
  const int64_t now = now_ns();
  int none = 0;
  if (first_signal.load() == none) first_at = now;
  if (first_signal.compare_exchange_strong(none, number)) return;
  if (number == SIGHUP || (number != SIGINT && now - first_at.load() < 1'000'000'000)) return;
  if (void (*second)(int) = on_second.load()) second(number);
}

}  // namespace

std::vector<int> stop_signals() {
  std::vector<int> signals = {SIGINT, SIGTERM, SIGUSR1};
  struct sigaction hang_up{};
  ::sigaction(SIGHUP, nullptr, &hang_up);
  if (hang_up.sa_handler != SIG_IGN) signals.push_back(SIGHUP);
  return signals;
}

StopSignal::StopSignal(void (*second)(int signal), HangUp hang_up) {
  if (owned.exchange(true)) throw_error(ErrorKind::internal, "two StopSignal objects at a time");
  first_signal = 0;
  on_second = second;
  for (const int signal : stop_signals()) {
    if (signal != SIGHUP || hang_up == HangUp::stops) install(signal, ingot_on_stop_signal);
  }
  for (const int signal : {SIGPIPE, SIGXFSZ}) install(signal, SIG_IGN);
}

StopSignal::~StopSignal() {
  for (const Former& former : former_) ::sigaction(former.signal, &former.action, nullptr);
  on_second = nullptr;
  first_signal = 0;
  owned = false;
}

void StopSignal::install(int signal, void (*handler)(int)) {
  struct sigaction action{};
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  action.sa_handler = handler;
  Former& former = former_.emplace_back(Former{signal, {}});
  ::sigaction(signal, &action, &former.action);
}

int StopSignal::number() const { return first_signal.load(std::memory_order_relaxed); }

ReloadSignal::ReloadSignal() {
  if (reload_owned.exchange(true)) throw_error(ErrorKind::internal, "two ReloadSignal objects at a time");
  reload_wanted = false;
  struct sigaction action{};
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  action.sa_handler = ingot_on_reload_signal;
  ::sigaction(SIGHUP, &action, &former_);
}

ReloadSignal::~ReloadSignal() {
  ::sigaction(SIGHUP, &former_, nullptr);
  reload_owned = false;
}

bool ReloadSignal::take() { return reload_wanted.exchange(false); }

}  // namespace ingot
