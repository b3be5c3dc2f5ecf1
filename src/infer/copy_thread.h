// A background thread for large copies within host memory, so that engine steps do not wait for them.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "base/mutex.h"

namespace ingot::infer {

class CopyThread {
 public:
  // Stopping or cancelling waits for the copy of at most one chunk of this size.
  static constexpr size_t chunk_bytes = size_t{4} << 20;

  struct Segment {
    std::byte* to = nullptr;
    const void* from = nullptr;
    size_t bytes = 0;
  };
  // A queued or running copy. The memory of all its segments must stay valid, and nobody else may write to it, until
  // the copy has ended.
  struct Copy;

  CopyThread();
  // Stops the running copy, unfinished, and drops queued ones.
  ~CopyThread();

  // Queues a copy after the earlier ones. Thread-safe, as are all functions here.
  std::shared_ptr<Copy> start(std::vector<Segment> segments);
  // Whether the copy has ended; `wait` blocks until it has.
  bool ended(const Copy& copy) const;
  void wait(const Copy& copy) const;
  // Ends the copy. When this returns, it has ended, finished or not.
  void cancel(const std::shared_ptr<Copy>& copy);

 private:
  struct Queue {
    std::deque<std::shared_ptr<Copy>> copies;  // not yet started
    bool stop = false;
  };

  void run();
  bool wanted(const Copy& copy) const;

  mutable Guarded<Queue> queue_;  // also guards the state of every Copy
  std::thread thread_;
};

}  // namespace ingot::infer
