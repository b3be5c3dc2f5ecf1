// Work of many owners on a few threads, in fair shares.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "base/clock.h"

namespace ingot::server {

class WorkQueue {
 public:
  // `waiting`: most pieces of work that wait for a thread, of one owner at most half of them. `seconds`: the
  // clock that work is measured by. Errors: resource when the threads cannot be started.
  WorkQueue(int threads, int64_t waiting, double (*seconds)() = steady_seconds);
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;
  ~WorkQueue();  // as stop()

  // `work` will run on one of the threads: owners have turns by the time that their work has taken, which decides the
  // order and nothing else; an owner's own pieces begin in their order. One thread is kept from each owner, so that no
  // owner's long work has them all. Owner 0, that of requests without a key, may have all threads and the whole queue.
  // False when too much waits already: then `work` is not kept. Thread-safe.
  bool add(uint64_t owner, std::function<void()> work);

  // Runs what waits, then ends the threads. Nothing may be added from now on.
  void stop();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ingot::server
