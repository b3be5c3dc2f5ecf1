// The streams of a simulated device: queues of work, which runs when the host waits for it. While it waits for another
// device, what waits for others in the other streams goes on too.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <utility>

#include "backend/gpu/sim/executor.h"
#include "tensor/device.h"

namespace ingot::gpu::sim {

class Streams {
 public:
  // `waits` is called again and again while another device is waited for, with the seconds so far, and then with 0. It
  // may throw.
  Streams(Schedule schedule, std::function<void(double)> waits) : schedule_(schedule), waits_(std::move(waits)) {}

  // A position in a stream: after its first `number` items. Marks of a stream count up; 0 waits for nothing.
  struct Mark {
    Stream stream = Stream::compute;
    uint64_t number = 0;
  };

  // Appends `work` to the stream. An exception that it throws comes out of the call that runs it, and of every later
  // call that would run work.
  void add(Stream stream, std::function<void()> work);
  // The same for work that waits for other devices: it is called again and again until it returns true, and uses no
  // stream.
  void add_poll(Stream stream, std::function<bool()> poll);
  Mark mark(Stream stream) const;
  void wait_on(Stream stream, Mark mark);
  void run_to(Mark mark);
  bool step_to(Mark mark);      // runs at most one item; true if the mark is reached. Polling therefore makes progress.
  bool prepare(Stream stream);  // as HostStream::prepare()
  void run_all();
  void drop_all() noexcept;  // discards all queued work without running it

 private:
  struct Item {
    std::function<void()> work;  // or
    std::function<bool()> poll;  // or
    Mark wait_on;
    bool is_wait() const { return !work && !poll; }
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
  void poll(Stream stream);     // runs the next item, a poll
  void advance(Stream stream);  // runs polls that are done and waits that have ended, up to the first other item
  void run_ahead();

  Schedule schedule_;
  std::function<void(double)> waits_;
  std::array<Queue, num_streams> queues_;
  std::exception_ptr failure_;
  uint32_t random_ = 1;
};

}  // namespace ingot::gpu::sim
