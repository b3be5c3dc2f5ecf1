// The streams of a simulated device: queues of work, which runs when the host waits for it.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>

#include "backend/gpu/sim/executor.h"
#include "tensor/device.h"

namespace ingot::gpu::sim {

class Streams {
 public:
  explicit Streams(Schedule schedule) : schedule_(schedule) {}

  // A position in a stream: after its first `number` items. Marks of a stream count up; 0 waits for nothing.
  struct Mark {
    Stream stream = Stream::compute;
    uint64_t number = 0;
  };

  // Appends `work` to the stream. An exception that it throws comes out of the call that runs it, and of every later
  // call that would run work.
  void add(Stream stream, std::function<void()> work);
  Mark mark(Stream stream) const;
  void wait_on(Stream stream, Mark mark);
  void run_to(Mark mark);
  bool step_to(Mark mark);  // runs at most one item; true if the mark is reached. Polling therefore makes progress.
  void run_all();
  void drop_all() noexcept;  // discards all queued work without running it

 private:
  struct Item {
    std::function<void()> work;  // empty: a wait for `wait_on`
    Mark wait_on;
  };
  struct Queue {
    std::deque<Item> items;
    uint64_t num_added = 0;  // items
    uint64_t num_run = 0;
  };
  Queue& queue(Stream stream) { return queues_[static_cast<size_t>(stream)]; }
  const Queue& queue(Stream stream) const { return queues_[static_cast<size_t>(stream)]; }
  bool reached(Mark mark) const;
  void run_one(Stream stream);  // runs the next item, first what it waits for
  void run_ahead();

  Schedule schedule_;
  std::array<Queue, num_streams> queues_;
  std::exception_ptr failure_;
  uint32_t random_ = 1;
};

}  // namespace ingot::gpu::sim
