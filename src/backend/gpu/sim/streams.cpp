#include "backend/gpu/sim/streams.h"

#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace ingot::gpu::sim {

void Streams::add(Stream stream, std::function<void()> work) {
  queue(stream).items.push_back({std::move(work), {}, {}});
  ++queue(stream).num_added;
  run_ahead();
}

void Streams::add_poll(Stream stream, std::function<bool()> poll) {
  queue(stream).items.push_back({{}, std::move(poll), {}});
  ++queue(stream).num_added;
}

Streams::Mark Streams::mark(Stream stream) const { return {stream, queue(stream).num_added}; }

void Streams::wait_on(Stream stream, Mark mark) {
  queue(stream).items.push_back({{}, {}, mark});
  ++queue(stream).num_added;
}

bool Streams::reached(Mark mark) const { return queue(mark.stream).num_run >= mark.number; }

void Streams::run_to(Mark mark) {
  if (failure_) std::rethrow_exception(failure_);
  while (!reached(mark)) run_one(mark.stream);
}

bool Streams::step_to(Mark mark) {
  if (failure_) std::rethrow_exception(failure_);
  if (!reached(mark)) run_one(mark.stream);
  return reached(mark);
}

bool Streams::prepare(Stream stream) {
  std::vector<Mark> marks;  // copied, since running them may run items of the stream too
  for (const Item& item : queue(stream).items) {
    if (item.work) {
      run_to(mark(stream));
      return true;
    }
    if (item.is_wait()) marks.push_back(item.wait_on);
  }
  for (const Mark& mark : marks) run_to(mark);
  advance(stream);
  return queue(stream).items.empty();
}

void Streams::run_all() {
  for (size_t stream = 0; stream < num_streams; ++stream) run_to(mark(static_cast<Stream>(stream)));
}

void Streams::drop_all() noexcept {
  for (Queue& queue : queues_) {
    queue.items.clear();
    queue.num_run = queue.num_added;
  }
}

void Streams::run_one(Stream stream) {
  Queue& own = queue(stream);
  const Item& item = own.items.front();  // until it is done, nothing after it may run
  try {
    if (item.work) {
      item.work();
    } else if (item.poll) {
      poll(stream);
    } else {
      run_to(item.wait_on);
    }
  } catch (...) {
    failure_ = std::current_exception();
    drop_all();
    throw;
  }
  own.items.pop_front();
  ++own.num_run;
}

void Streams::poll(Stream stream) {
  const std::function<bool()>& done = queue(stream).items.front().poll;
  for (const double begin = steady_seconds(); !done();) {
    for (size_t other = 0; other < num_streams; ++other) {
      if (static_cast<Stream>(other) != stream) advance(static_cast<Stream>(other));
    }
    waits_(steady_seconds() - begin);
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  waits_(0);
}

void Streams::advance(Stream stream) {
  Queue& own = queue(stream);
  while (!own.items.empty()) {
    const Item& next = own.items.front();
    if (next.work || (next.poll && !next.poll()) || (next.is_wait() && !reached(next.wait_on))) return;
    own.items.pop_front();
    ++own.num_run;
  }
}

// Runs copy-stream items that do not wait for the compute stream.
void Streams::run_ahead() {
  if (failure_ || schedule_ == Schedule::forward) return;
  Queue& copies = queue(Stream::copy);
  while (!copies.items.empty()) {
    const Item& next = copies.items.front();
    if (next.poll || (next.is_wait() && !reached(next.wait_on))) return;
    if (schedule_ == Schedule::random) {
      random_ = random_ * 1664525U + 1013904223U;
      if ((random_ >> 16U) % 2 == 0) return;
    }
    run_one(Stream::copy);
  }
}

}  // namespace ingot::gpu::sim
