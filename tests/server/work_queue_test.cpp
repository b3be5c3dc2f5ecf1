#include "server/work_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <vector>

#include "base/mutex.h"
#include "tests/base/few_threads.h"
#include "tests/sanitized.h"

namespace ingot::server {
namespace {

struct Seen {
  std::vector<uint64_t> began;  // owners of started work
  bool open = false;            // work may end
};

struct WorkQueueTest : testing::Test {
  Guarded<Seen> seen;

  std::function<void()> work(uint64_t owner) {
    return [this, owner] {
      auto held = seen.lock();
      held->began.push_back(owner);
      seen.notify_all();
      held.wait([](const Seen& s) { return s.open; });
    };
  }
  void open() {
    seen.lock()->open = true;
    seen.notify_all();
  }
  void wait_for(size_t began) {
    auto held = seen.lock();
    EXPECT_TRUE(held.wait_for(60, [&](const Seen& s) { return s.began.size() >= began; }));
  }
};

TEST_F(WorkQueueTest, OneOwnersLongWorkLeavesAThreadToOthers) {
  WorkQueue queue(3, 100);
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(queue.add(1, work(1)));
  wait_for(2);
  EXPECT_TRUE(queue.add(2, work(2)));
  wait_for(3);  // while both of the first owner's are running
  EXPECT_EQ(seen.lock()->began, (std::vector<uint64_t>{1, 1, 2}));
  open();
  queue.stop();
  EXPECT_EQ(seen.lock()->began.size(), 11U);  // all accepted work has been done
}

// A clock that the work advances.
std::atomic<double> now = 0;

TEST_F(WorkQueueTest, OwnersShareTimeNotCalls) {
  WorkQueue queue(1, 1000, [] { return now.load(); });
  queue.add(9, work(9));
  wait_for(1);
  const auto taking = [&](uint64_t owner, double seconds) {
    return [this, owner, seconds] {
      seen.lock()->began.push_back(owner);
      now = now + seconds;
    };
  };
  for (int i = 0; i < 32; ++i) queue.add(1, taking(1, 8));
  for (int i = 0; i < 100; ++i) queue.add(2, taking(2, 0.001));
  open();
  queue.stop();
  // A hundred short pieces of the second owner take less time than one of the first.
  const std::vector<uint64_t>& began = seen.lock()->began;
  ASSERT_EQ(began.size(), 133U);
  EXPECT_LE(std::count(began.begin(), std::find(began.rbegin(), began.rend(), 2U).base(), 1U), 2);
}

TEST_F(WorkQueueTest, WaitingWorkIsLimited) {
  WorkQueue queue(1, 4);
  EXPECT_TRUE(queue.add(1, work(1)));
  wait_for(1);
  EXPECT_TRUE(queue.add(1, work(1)));
  EXPECT_TRUE(queue.add(1, work(1)));
  EXPECT_FALSE(queue.add(1, work(1))) << "an owner may use half of the limit";
  EXPECT_TRUE(queue.add(2, work(2)));
  EXPECT_TRUE(queue.add(0, work(0)));
  EXPECT_FALSE(queue.add(3, work(3))) << "the limit is reached";
  open();
  queue.stop();
  EXPECT_EQ(seen.lock()->began.size(), 5U);
}

TEST_F(WorkQueueTest, AThrowingJobEndsAlone) {
  WorkQueue queue(1, 4);
  queue.add(1, [] { throw std::bad_alloc(); });
  open();
  queue.add(1, work(1));
  queue.stop();
  EXPECT_EQ(seen.lock()->began.size(), 1U);
}

TEST_F(WorkQueueTest, MissingThreadsAreAnError) {
  if (sanitized) return;  // sanitizers need more memory than the limit leaves
  EXPECT_EXIT(without_threads([] { const WorkQueue queue(4, 1); }), testing::ExitedWithCode(7),
              "cannot start a thread for requests' work");
}

TEST_F(WorkQueueTest, WorkWithoutAnOwnerMayUseAllThreads) {
  WorkQueue queue(2, 100);
  queue.add(0, work(0));
  queue.add(0, work(0));
  wait_for(2);
  open();
}

}  // namespace
}  // namespace ingot::server
