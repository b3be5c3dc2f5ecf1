// The two streams of a simulated device: work that waits until somebody waits for it.
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

  // What an event is behind of; 0: nothing. Marks of a stream count up.
  struct Mark {
    Stream stream = Stream::compute;
    uint64_t number = 0;
  };

  // `work` is of the stream's end; what it throws comes out of the call that makes it run, and of every later one.
  void add(Stream stream, std::function<void()> work);
  Mark mark(Stream stream) const;
  void hold(Stream stream, Mark mark);
  void run_to(Mark mark);
  bool step_to(Mark mark);  // runs one item if it must; true when the mark is reached, so that asking again helps
  void run_all();
  void drop_all() noexcept;  // nothing of it runs

 private:
  struct Item {
    std::function<void()> work;  // empty: a hold
    Mark hold;
  };
  struct Line {
    std::deque<Item> items;
    uint64_t given = 0;  // items
    uint64_t run = 0;
  };
  Line& line(Stream stream) { return lines_[stream == Stream::compute ? 0 : 1]; }
  const Line& line(Stream stream) const { return lines_[stream == Stream::compute ? 0 : 1]; }
  bool reached(Mark mark) const;
  void run_one(Stream stream);  // and what it is held for
  void run_ahead();

  Schedule schedule_;
  std::array<Line, 2> lines_;
  std::exception_ptr failure_;
  uint32_t random_ = 1;
};

}  // namespace ingot::gpu::sim
