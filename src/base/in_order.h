// Work on a stream of items by several threads, with both ends in order.
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

// Takes items one after the other (take returns about how many bytes one holds, or nothing when there are no more),
// works on each of them on any thread of the pool, and puts them one after the other in the order in which they were
// taken, until put says no. At any time one thread at most is in `take`, and one in `put`; between the two are at most
// 4 items a thread, and nothing more is taken while they hold in_order_bytes a thread. What `take` or `work` throws
// comes out when it is its item's turn to be put, so which error that is, and what was put before it, does not depend
// on the threads; what `put` throws comes out as it is. Nothing is put behind an error.
template <class Item>
void run_in_order(ThreadPool& pool, FunctionRef<std::optional<int64_t>(Item&)> take, FunctionRef<void(Item&)> work,
                  FunctionRef<bool(Item&)> put) {
  struct Done {
    Item item{};
    int64_t bytes = 0;
    std::exception_ptr error;
  };
  struct Stream {
    int64_t num_taken = 0;
    int64_t num_put = 0;
    int64_t bytes = 0;     // of the items between
    bool at_end = false;   // nothing more is taken
    bool stopped = false;  // nothing more is put
    bool putting = false;
    std::map<int64_t, Done> done;  // by number, waiting for their turn
  };
  Guarded<Stream> stream;
  Mutex taking;
  const int64_t most = int64_t{4} * pool.threads();
  const int64_t max_bytes = in_order_bytes * pool.threads();

  // False at the end. An error of `take` is an item, the last one.
  const auto next = [&](Done& one, int64_t& number) {
    const MutexLock alone(taking);
    {
      auto held = stream.lock();
      held.wait([&](const Stream& s) { return s.stopped || (s.num_taken - s.num_put < most && s.bytes < max_bytes); });
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
  // The items whose turn it is, unless another thread is at them.
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
