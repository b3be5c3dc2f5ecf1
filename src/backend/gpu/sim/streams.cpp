#include "backend/gpu/sim/streams.h"

#include <utility>

namespace ingot::gpu::sim {

void Streams::add(Stream stream, std::function<void()> work) {
  queue(stream).items.push_back({std::move(work), {}});
  ++queue(stream).num_added;
  run_ahead();
}

Streams::Mark Streams::mark(Stream stream) const { return {stream, queue(stream).num_added}; }

void Streams::wait_on(Stream stream, Mark mark) {
  queue(stream).items.push_back({{}, mark});
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
  const Item item = std::move(own.items.front());
  own.items.pop_front();
  ++own.num_run;
  try {
    if (item.work) {
      item.work();
    } else {
      run_to(item.wait_on);
    }
  } catch (...) {
    failure_ = std::current_exception();
    drop_all();
    throw;
  }
}

// Runs copy-stream items that do not wait for the compute stream.
void Streams::run_ahead() {
  if (failure_ || schedule_ == Schedule::forward) return;
  Queue& copies = queue(Stream::copy);
  while (!copies.items.empty()) {
    const Item& next = copies.items.front();
    if (!next.work && !reached(next.wait_on)) return;
    if (schedule_ == Schedule::random) {
      random_ = random_ * 1664525U + 1013904223U;
      if ((random_ >> 16U) % 2 == 0) return;
    }
    run_one(Stream::copy);
  }
}

}  // namespace ingot::gpu::sim
