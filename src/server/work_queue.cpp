#include "server/work_queue.h"

#include <deque>
#include <map>
#include <thread>
#include <vector>

#include "base/deficit_round_robin.h"
#include "base/mutex.h"
#include "base/threads.h"
#include "server/attempt.h"

namespace ingot::server {

namespace {

// In microseconds of work.
constexpr int64_t round_us = 10'000;
constexpr int64_t max_debt_us = 10'000'000;  // an owner is skipped for at most this much work of others

struct Owner {
  std::deque<std::function<void()>> waiting;
  int running = 0;
};

struct Tasks {
  std::map<uint64_t, Owner> owners;  // owners with waiting or running work
  DeficitRoundRobin turns{round_us, max_debt_us};
  int64_t waiting = 0;
  bool stop = false;
};

}  // namespace

struct WorkQueue::State {
  int num_threads = 1;
  int64_t max_waiting = 1;
  double (*seconds)() = nullptr;
  Guarded<Tasks> tasks;
  std::vector<std::thread> threads;

  bool is_ready(const Tasks& all, uint64_t owner) const {
    const auto found = all.owners.find(owner);
    if (found == all.owners.end() || found->second.waiting.empty()) return false;
    return owner == 0 || found->second.running < std::max(1, num_threads - 1);
  }

  void run() {
    for (;;) {
      std::optional<uint64_t> owner;
      std::function<void()> work;
      {
        auto held = tasks.lock();
        held.wait([&](Tasks& all) {
          owner = all.turns.next([&](uint64_t each) { return is_ready(all, each); });
          return owner || (all.stop && all.waiting == 0);
        });
        if (!owner) return;
        Owner& of = held->owners.at(*owner);
        work = std::move(of.waiting.front());
        of.waiting.pop_front();
        ++of.running;
        --held->waiting;
      }
      const double begin = seconds();
      attempt(work);
      work = {};  // frees what it captured before others wait for its end
      const auto used_us = static_cast<int64_t>((seconds() - begin) * 1e6);
      {
        auto held = tasks.lock();
        Owner& of = held->owners.at(*owner);
        --of.running;
        if (of.running == 0 && of.waiting.empty()) held->owners.erase(*owner);
        held->turns.charge(*owner, std::max<int64_t>(1, used_us));
        held->turns.leave(*owner);
      }
      tasks.notify_all();
    }
  }

  void stop() {
    tasks.lock()->stop = true;
    tasks.notify_all();
    for (std::thread& thread : threads) thread.join();
    threads.clear();
  }
};

WorkQueue::WorkQueue(int threads, int64_t waiting, double (*seconds)()) : state_(std::make_unique<State>()) {
  state_->num_threads = std::max(1, threads);
  state_->max_waiting = waiting;
  state_->seconds = seconds;
  try {
    state_->threads.reserve(static_cast<size_t>(state_->num_threads));
    for (int i = 0; i < state_->num_threads; ++i) {
      state_->threads.push_back(start_thread("requests' work", [state = state_.get()] { state->run(); }));
    }
  } catch (...) {
    state_->stop();
    throw;
  }
}

WorkQueue::~WorkQueue() { stop(); }

void WorkQueue::stop() { state_->stop(); }

bool WorkQueue::add(uint64_t owner, std::function<void()> work) {
  {
    auto held = state_->tasks.lock();
    const auto found = held->owners.find(owner);
    const int64_t waiting = found == held->owners.end() ? 0 : std::ssize(found->second.waiting);
    const int64_t share = owner == 0 ? state_->max_waiting : (state_->max_waiting + 1) / 2;
    if (held->waiting >= state_->max_waiting || waiting >= share) return false;
    held->turns.enter(owner);
    try {
      held->owners[owner].waiting.push_back(std::move(work));
    } catch (...) {
      held->turns.leave(owner);
      throw;
    }
    ++held->waiting;
  }
  state_->tasks.notify_all();
  return true;
}

}  // namespace ingot::server
