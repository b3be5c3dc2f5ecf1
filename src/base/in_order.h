// Parallel work on a sequence of items that is read and written in order.
#pragma once

#include <cstdint>
#include <exception>
#include <map>
#include <optional>
#include <utility>

#include "base/function_ref.h"
#include "base/mutex.h"
#include "base/thread_pool.h"

namespace ingot {

constexpr int64_t in_order_bytes = int64_t{32} << 20;

// Takes items one at a time (`take` returns about how many bytes the item holds, or nothing when there are no more),
// calls `work` for each on any thread of the pool, and passes them to `put` one at a time in the order in which they
// were taken, until `put` returns false. At any time at most one thread is in `take` and one in `put`. Between the two
// are at most 4 items per thread, and no more is taken while they hold in_order_bytes per thread. An exception of
// `take` or `work` is thrown when it is that item's turn to be put, so neither the error nor what was put before it
// depends on the threads; an exception of `put` is thrown as it is. Nothing is put after an error.
template <class Item>
void ordered_pipeline(ThreadPool& pool, FunctionRef<std::optional<int64_t>(Item&)> take, FunctionRef<void(Item&)> work,
                      FunctionRef<bool(Item&)> put) {
  struct Done {
    Item item{};
    int64_t bytes = 0;
    std::exception_ptr error;
  };
  struct Stream {
    int64_t num_taken = 0;
    int64_t num_put = 0;
    int64_t bytes = 0;     // of items that were taken and not yet put
    bool at_end = false;   // nothing more is taken
    bool stopped = false;  // nothing more is put
    bool putting = false;
    std::map<int64_t, Done> done;  // by number, waiting for their turn
  };
  Guarded<Stream> stream;
  Mutex taking;
  const int64_t max_items = int64_t{4} * pool.threads();
  const int64_t max_bytes = in_order_bytes * pool.threads();

  // False at the end. An error of `take` becomes the last item.
  const auto next = [&](Done& one, int64_t& number) {
    const MutexLock alone(taking);
    {
      auto held = stream.lock();
      held.wait(
          [&](const Stream& s) { return s.stopped || (s.num_taken - s.num_put < max_items && s.bytes < max_bytes); });
      if (held->stopped || held->at_end) return false;
    }
    std::optional<int64_t> bytes = 0;
    try {
      bytes = take(one.item);
    } catch (...) {
      one.error = std::current_exception();
    }
    auto held = stream.lock();
    held->at_end = !bytes || one.error;
    if (!bytes) return false;
    one.bytes = *bytes;
    held->bytes += one.bytes;
    number = held->num_taken++;
    return true;
  };
  // Puts the items whose turn it is, unless another thread is doing that.
  const auto put_ready = [&] {
    for (;;) {
      Done one;
      {
        auto held = stream.lock();
        if (held->stopped || held->putting) return;
        auto first = held->done.extract(held->num_put);
        if (first.empty()) return;
        one = std::move(first.mapped());
        held->putting = true;
      }
      if (one.error) std::rethrow_exception(one.error);
      const bool more = put(one.item);
      {
        auto held = stream.lock();
        held->putting = false;
        ++held->num_put;
        held->bytes -= one.bytes;
        if (!more) held->stopped = true;
      }
      stream.notify_all();
    }
  };
  const auto run = [&] {
    for (;;) {
      Done one;
      int64_t number = 0;
      if (!next(one, number)) return;
      try {
        if (!one.error) work(one.item);
      } catch (...) {
        one.error = std::current_exception();
      }
      stream.lock()->done.emplace(number, std::move(one));
      put_ready();
    }
  };
  pool.run(pool.threads(), [&](int) {
    try {
      run();
    } catch (...) {
      stream.lock()->stopped = true;
      stream.notify_all();
      throw;
    }
  });
}

}  // namespace ingot
