// The service when the engine's thread or a submitting thread gets no memory. Listeners, which run on the engine's
// thread, start the shortage.
#include <gtest/gtest.h>

#include <chrono>
#include <new>
#include <utility>

#include "base/error.h"
#include "tests/infer/service_fixture.h"
#include "tests/infer/short_memory.h"

namespace ingot::infer {
namespace {

struct Ends {
  bool holds = false;  // a listener blocks the engine's thread
  bool may_go_on = false;
  std::vector<ErrorKind> kinds;  // of the requests that failed
  int fine = 0;                  // the number of other requests
  Ends() { kinds.reserve(8); }   // so that counting needs no memory
};

class ServiceMemory : public ServiceTest {
 protected:
  void TearDown() override { service.reset(); }
  // Counts how a request ends; memory is available again by then.
  bool count_end(const Output& output) {
    if (!output.finish) return true;
    allow_allocations(all_allocations);
    auto held = ends_.lock();
    if (*output.finish == FinishReason::failed) {
      held->kinds.push_back(output.kind);
    } else {
      ++held->fine;
    }
    ends_.notify_all();
    return true;
  }
  Listener counting() {
    return [this](const Output& output) { return count_end(output); };
  }
  // Submits a request whose first output blocks the engine's thread until the test continues it, and then leaves that
  // thread the given number of allocations.
  int64_t hold(Request held, int64_t allocations) {
    const int64_t ticket =
        service->submit({std::move(held)}, [this, allocations, first = true](const Output& output) mutable {
          if (!std::exchange(first, false)) return count_end(output);
          auto ends = ends_.lock();
          ends->holds = true;
          ends_.notify_all();
          ends.wait([](const Ends& e) { return e.may_go_on; });
          allow_allocations(allocations);
          return true;
        });
    EXPECT_TRUE(ends_.lock().wait_for(60, [](const Ends& e) { return e.holds; }));
    return ticket;
  }
  void go_on() {
    ends_.lock()->may_go_on = true;
    ends_.notify_all();
  }
  // Waits until that many requests have ended.
  Ends wait_for_ends(size_t count) {
    auto held = ends_.lock();
    EXPECT_TRUE(
        held.wait_for(60, [&](const Ends& e) { return e.kinds.size() + static_cast<size_t>(e.fine) >= count; }));
    const Ends all = *held;
    *held = Ends();
    return all;
  }
  // A request that needs as much memory in the engine as any other.
  Request large(uint64_t seed) const {
    Request out = request(seed, 4);
    out.owner = 7;
    out.deadline = std::chrono::steady_clock::now() + std::chrono::hours(1);
    out.sampling.frequency_penalty = 0.5;
    return out;
  }

  Guarded<Ends> ends_;
};

// The first request blocks the engine's thread until the second one has been submitted. The second is then accepted
// with more and more allocations available, until there are enough and the engine's step fails, which ends all.
TEST_F(ServiceMemory, ARequestWithoutMemoryEndsAlone) {
  start();
  int64_t allocations = 0;
  for (;; ++allocations) {
    ASSERT_LT(allocations, 100);
    hold(request(1, 8), allocations);
    service->submit({large(2)}, counting());
    go_on();
    const Ends ends = wait_for_ends(2);
    if (!service->failure().empty()) {
      EXPECT_EQ(ends.kinds, (std::vector{ErrorKind::internal, ErrorKind::unavailable}));
      break;
    }
    EXPECT_EQ(ends.kinds, std::vector{ErrorKind::unavailable}) << allocations;
    EXPECT_EQ(ends.fine, 1) << allocations;
    Collector later(1);
    const int64_t ticket = service->submit({large(3)}, later.listener());
    EXPECT_EQ(later.ends(1).ids[0].size(), 4U) << allocations;
    service->cancel(ticket);
  }
  EXPECT_GT(allocations, 5) << "no allocation of the request failed";
}

TEST_F(ServiceMemory, CancellingNeedsNoMemory) {
  start();
  const int64_t ticket = hold(request(1, 200), 0);
  service->cancel(ticket, 0);
  go_on();
  EXPECT_EQ(wait_for_ends(1).kinds, std::vector{ErrorKind::internal});  // the step after it fails
  EXPECT_NE(service->failure(), "");
}

// Two requests end in one step: the listener of the first leaves no memory.
TEST_F(ServiceMemory, DeliveringOutputsNeedsNoMemory) {
  start();
  hold(request(3, 2), all_allocations);
  const auto listener = [this, ended = std::make_shared<int>(0)](const Output& output) {
    count_end(output);
    if (++*ended == 1) allow_allocations(0);
    return true;
  };
  for (const uint64_t owner : {1, 2}) {
    Request one = request(owner, 1);
    one.owner = owner;
    service->submit({one}, listener);
  }
  go_on();
  EXPECT_EQ(wait_for_ends(3).fine, 3);
  EXPECT_EQ(service->failure(), "");
}

// A request that could not be queued for the engine is not counted anywhere.
TEST_F(ServiceMemory, ARequestThatCannotBeQueuedLeavesNoTrace) {
  start(2, 4, 2, 20);
  int64_t allocations = 0;
  for (bool taken = false; !taken; ++allocations) {
    ASSERT_LT(allocations, 100);
    std::vector<Request> both = {large(1), large(2)};
    Listener listener = counting();
    allow_allocations(allocations);
    try {
      service->submit(std::move(both), std::move(listener));
      taken = true;
    } catch (const std::bad_alloc&) {
      taken = false;
    }
    allow_allocations(all_allocations);
    if (!taken) EXPECT_TRUE(service->idle());
  }
  EXPECT_GT(allocations, 5);
  EXPECT_EQ(wait_for_ends(2).fine, 2);
}

}  // namespace
}  // namespace ingot::infer
