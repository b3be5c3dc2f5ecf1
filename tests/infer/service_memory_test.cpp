// What the service does where the engine's thread, or one that asks, gets no memory. Listeners say when it runs out:
// they run on the engine's thread.
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
  bool holds = false;  // a listener has the engine's thread
  bool may_go_on = false;
  std::vector<ErrorKind> kinds;  // of those that failed
  int fine = 0;                  // the others
  Ends() { kinds.reserve(8); }   // no memory is needed then
};

class ServiceMemory : public ServiceTest {
 protected:
  void TearDown() override { service.reset(); }
  // Counts how a request ends; there is memory again by then.
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
  // Submits a request that holds the engine's thread at its first output until the test goes on, and then leaves it so
  // many allocations.
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
  // Of so many requests.
  Ends wait_for_ends(size_t count) {
    auto held = ends_.lock();
    EXPECT_TRUE(
        held.wait_for(60, [&](const Ends& e) { return e.kinds.size() + static_cast<size_t>(e.fine) >= count; }));
    const Ends all = *held;
    *held = Ends();
    return all;
  }
  // A request that the engine keeps as much of as of any.
  Request large(uint64_t seed) const {
    Request out = request(seed, 4);
    out.owner = 7;
    out.deadline = std::chrono::steady_clock::now() + std::chrono::hours(1);
    out.sampling.frequency_penalty = 0.5;
    return out;
  }

  Guarded<Ends> ends_;
};

// The first request holds the engine's thread until the second has come, which is then taken with less and less want of
// memory: in the end there is enough for it, and the engine's step fails, which ends all.
TEST_F(ServiceMemory, ARequestThatCannotBeTakenEndsAlone) {
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
  EXPECT_GT(allocations, 5) << "nothing of the request's was refused memory";
}

TEST_F(ServiceMemory, CancellingNeedsNone) {
  start();
  const int64_t ticket = hold(request(1, 200), 0);
  service->cancel(ticket, 0);
  go_on();
  EXPECT_EQ(wait_for_ends(1).kinds, std::vector{ErrorKind::internal});  // of the step behind it
  EXPECT_NE(service->failure(), "");
}

// Two requests end with one step: the first one's listener leaves no memory.
TEST_F(ServiceMemory, GivingWhatAStepMadeNeedsNone) {
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

// Nothing of a request is counted that could not be left for the engine.
TEST_F(ServiceMemory, ARequestThatCannotBeLeftForTheEngineIsAsIfItNeverCame) {
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
