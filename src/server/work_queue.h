// Work of many owners on a few threads, in fair shares.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace ingot::server {

class WorkQueue {
 public:
  // `waiting`: most pieces of work that wait for a thread, of one owner at most half of them. Errors: resource when the
  // threads cannot be started.
  WorkQueue(int threads, int64_t waiting);
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;
  ~WorkQueue();  // as stop()

  // `work` will run on one of the threads: owners have turns by `cost`, in any unit of which some tens of thousands are
  // a moment's work; an owner's own pieces begin in their order. One thread is kept from each owner, so that nobody's
  // long work has them all; owner 0, who stands for nobody, may have them all, and the whole queue. False when too much
  // waits already: then `work` is not kept. Thread-safe.
  bool add(uint64_t owner, int64_t cost, std::function<void()> work);

  // Runs what waits, then ends the threads. Nothing may be added from now on.
  void stop();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ingot::server
