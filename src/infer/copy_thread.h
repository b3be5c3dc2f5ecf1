// Copies within host memory on a thread of its own, so that nobody's step waits for what is large.
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
  // Who stops or cancels waits for a piece at most.
  static constexpr size_t piece_bytes = size_t{4} << 20;

  struct Part {
    std::byte* to = nullptr;
    const void* from = nullptr;
    size_t bytes = 0;
  };
  // A copy that was asked for. Both memories of all its parts stay, and are nobody else's to write, until it has ended.
  struct Copy;

  CopyThread();
  // Ends what is under way, unfinished.
  ~CopyThread();

  // The copy goes behind those that were asked for before. Thread-safe, as all of these.
  std::shared_ptr<Copy> start(std::vector<Part> parts);
  // Whether it has ended; `wait` returns when it has.
  bool ended(const Copy& copy) const;
  void wait(const Copy& copy) const;
  // When this returns it has ended, finished or not.
  void cancel(const std::shared_ptr<Copy>& copy);

 private:
  struct Queue {
    std::deque<std::shared_ptr<Copy>> copies;  // that were not begun
    bool stop = false;
  };

  void run();
  bool wanted(const Copy& copy) const;

  mutable Guarded<Queue> queue_;  // and what copies say of themselves
  std::thread thread_;
};

}  // namespace ingot::infer
