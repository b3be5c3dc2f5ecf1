#include "data/loader.h"

#include <deque>
#include <exception>
#include <future>

#include "base/error.h"
#include "base/mutex.h"
#include "base/threads.h"

namespace ingot::data {

namespace {

constexpr size_t batches_ahead = 2;
constexpr int64_t steps_expected = 16;

struct Queue {
  std::deque<HostBatch> batches;
  std::exception_ptr failure;
  bool stopping = false;
};

}  // namespace

struct Loader::State {
  State(const SequenceSet& data, const Order& its_order, int64_t first_step)
      : dataset(data), order(its_order), step(first_step), expected(first_step) {}

  void prepare() {
    try {
      for (;; ++step) {
        if (!wait_for_room()) return;
        expect();
        HostBatch batch = make_batch(dataset, order, step);
        queue.lock()->batches.push_back(std::move(batch));
        queue.notify_all();
      }
    } catch (...) {
      auto held = queue.lock();
      held->failure = std::current_exception();
      queue.notify_all();
    }
  }

  // Announces the samples of upcoming steps to the data set, as far as the order reaches.
  void expect() {
    for (; expected < step + steps_expected; ++expected) {
      try {
        dataset.expect(order.step_samples(expected));
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::usage) throw;
        return;  // the order has no such step
      }
    }
  }

  // False when the loader is being destroyed.
  bool wait_for_room() {
    auto held = queue.lock();
    held.wait([](const Queue& q) { return q.stopping || q.batches.size() < batches_ahead; });
    return !held->stopping;
  }

  const SequenceSet& dataset;
  const Order& order;
  int64_t step, expected;  // used by the prefetch thread only
  Guarded<Queue> queue;
  std::future<void> preparing;  // last member: joined before the others are destroyed
};

HostBatch make_batch(const SequenceSet& dataset, const Order& order, int64_t step) {
  HostBatch batch;
  batch.step = step;
  batch.samples = order.step_samples(step);
  batch.sequences.reserve(batch.samples.size());
  for (const int64_t sample : batch.samples) {
    batch.sequences.push_back(dataset.get(sample));
    batch.loss_tokens += batch.sequences.back().loss_tokens;
  }
  return batch;
}

Loader::Loader(const SequenceSet& dataset, const Order& order, int64_t first_step)
    : state_(std::make_unique<State>(dataset, order, first_step)) {
  if (order.num_sequences() != dataset.num_sequences()) {
    throw_error(ErrorKind::usage, "the sample order covers {} sequences, but the data has {}", order.num_sequences(),
                dataset.num_sequences());
  }
  state_->preparing = start_task("reading data", [state = state_.get()] { state->prepare(); });
}

Loader::~Loader() {
  state_->queue.lock()->stopping = true;
  state_->queue.notify_all();
}

HostBatch Loader::next() {
  auto held = state_->queue.lock();
  held.wait([](const Queue& q) { return !q.batches.empty() || q.failure != nullptr; });
  if (held->batches.empty()) std::rethrow_exception(held->failure);
  HostBatch batch = std::move(held->batches.front());
  held->batches.pop_front();
  state_->queue.notify_all();
  return batch;
}

}  // namespace ingot::data
