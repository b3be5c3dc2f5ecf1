// A thread pool whose time is shared fairly between owners.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "base/clock.h"

namespace ingot::server {

class WorkQueue {
 public:
  // `waiting`: max tasks that wait for a thread; one owner may have half of them. `seconds`: the clock that work is
  // measured by. Errors: resource when the threads cannot be started.
  WorkQueue(int threads, int64_t waiting, double (*seconds)() = steady_seconds);
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;
  ~WorkQueue();  // as stop()

  // Queues `work` to run on one of the threads. Owners take turns by the time that their work has taken, which affects
  // only the order; an owner's own work starts in FIFO order. With several threads, an owner's work never runs on all
  // of them at once, so that long work of one owner cannot block the others. Owner 0 (requests without a key) may use
  // all threads and the whole queue. False when too much waits already: then `work` is dropped. Thread-safe.
  bool add(uint64_t owner, std::function<void()> work);

  // Runs what waits, then ends the threads. Nothing may be added after this is called.
  void stop();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ingot::server
