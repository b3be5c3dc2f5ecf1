#include "infer/scheduler.h"

#include <gtest/gtest.h>

#include <set>

#include "base/philox.h"
#include "tests/infer/scheduling.h"

namespace ingot::infer {
namespace {

TEST(Scheduler, PrefillsInChunksThenDecodes) {
  PagePool pool(10, 4);
  Scheduler scheduler(pool, 8, 2);
  SequenceState a = sequence(1, 11);
  scheduler.add(&a);
  std::vector<ScheduledChunk> batch = scheduler.next();
  EXPECT_EQ(summary(batch), (std::vector<std::array<int64_t, 3>>{{1, 0, 8}}));
  advance(batch);
  batch = scheduler.next();
  EXPECT_EQ(summary(batch), (std::vector<std::array<int64_t, 3>>{{1, 8, 11}}));
  advance(batch);
  a.tokens = 12;
  batch = scheduler.next();
  EXPECT_EQ(summary(batch), (std::vector<std::array<int64_t, 3>>{{1, 11, 12}}));
  EXPECT_EQ(pool.free_pages(), 7);
  scheduler.remove(&a);
  EXPECT_EQ(pool.free_pages(), 10);
  EXPECT_TRUE(scheduler.next().empty());
}

TEST(Scheduler, ANewSequenceJoinsARunningBatch) {
  PagePool pool(100, 4);
  Scheduler scheduler(pool, 8, 2);
  SequenceState a = sequence(1, 3), b = sequence(2, 20), c = sequence(3, 2);
  scheduler.add(&a);
  advance(scheduler.next());
  a.tokens = 4;
  scheduler.add(&b);
  scheduler.add(&c);  // only two may run at once, so it waits
  const std::vector<ScheduledChunk> batch = scheduler.next();
  EXPECT_EQ(summary(batch), (std::vector<std::array<int64_t, 3>>{{1, 3, 4}, {2, 0, 7}}));
  EXPECT_EQ(scheduler.waiting(), 1);
}

TEST(Scheduler, TheNewestSequenceIsPreempted) {
  PagePool pool(3, 2);
  Scheduler scheduler(pool, 8, 2);
  SequenceState a = sequence(1, 2), b = sequence(2, 4);
  scheduler.add(&a);
  scheduler.add(&b);
  advance(scheduler.next());
  EXPECT_EQ(pool.free_pages(), 0);
  a.tokens = 3;  // needs a second page
  b.tokens = 5;
  const std::vector<ScheduledChunk> batch = scheduler.next();
  EXPECT_EQ(summary(batch).front(), (std::array<int64_t, 3>{1, 2, 3}));
  EXPECT_EQ(scheduler.preemptions(), 1);
  EXPECT_EQ(b.cached, 0);
}

// Under random load pages are never shared or lost, and all requests finish.
TEST(Scheduler, RandomLoadIsServedCompletely) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    RandomStream random(seed, 1);
    PagePool pool(12, 4);
    Scheduler scheduler(pool, 16, 4);
    std::vector<SequenceState> all;
    std::vector<int64_t> length;
    for (int64_t i = 0; i < 12; ++i) {
      const auto tenant = static_cast<uint64_t>(random.below(3));
      const auto tokens = 1 + static_cast<int64_t>(random.below(20));
      all.push_back(of_tenant(tenant, i, tokens, static_cast<int>(random.below(3))));
      length.push_back(all.back().tokens + 1 + static_cast<int64_t>(random.below(20)));
    }
    for (SequenceState& s : all) scheduler.add(&s);
    int steps = 0;
    for (size_t done = 0; done < all.size() && steps < 10000; ++steps) {
      const std::vector<ScheduledChunk> batch = scheduler.next();
      ASSERT_FALSE(batch.empty());
      int64_t tokens = 0;
      std::set<int32_t> pages;
      for (const SequenceState& s : all) {
        for (int32_t page : s.table.pages) EXPECT_TRUE(pages.insert(page).second) << "a page was allocated twice";
      }
      for (const ScheduledChunk& piece : batch) {
        EXPECT_EQ(piece.begin, piece.sequence->cached);
        EXPECT_GE(static_cast<int64_t>(piece.sequence->table.pages.size()) * 4, piece.end);
        tokens += piece.end - piece.begin;
      }
      EXPECT_LE(tokens, 16);
      advance(batch);
      for (const ScheduledChunk& piece : batch) {
        if (piece.end != piece.sequence->tokens) continue;
        if (++piece.sequence->tokens > length[static_cast<size_t>(piece.sequence->id)]) {
          scheduler.remove(piece.sequence);
          ++done;
        }
      }
    }
    EXPECT_LT(steps, 10000);
    EXPECT_EQ(pool.free_pages(), 12);
  }
}

TEST(Scheduler, HigherPriorityGoesFirst) {
  PagePool pool(100, 4);
  Scheduler scheduler(pool, 8, 1);
  SequenceState low = sequence(1, 3), middle = sequence(2, 3), high = sequence(3, 3);
  middle.priority = 1;
  high.priority = 2;
  scheduler.add(&low);
  scheduler.add(&middle);
  scheduler.add(&high);
  EXPECT_EQ(summary(scheduler.next()), (std::vector<std::array<int64_t, 3>>{{3, 0, 3}}));
  scheduler.remove(&high);
  EXPECT_EQ(summary(scheduler.next()), (std::vector<std::array<int64_t, 3>>{{2, 0, 3}}));
}

TEST(Scheduler, APreemptedSequenceWaitsInOrderAndIsRecomputed) {
  PagePool pool(4, 4);
  Scheduler scheduler(pool, 16, 2);
  SequenceState a = sequence(1, 4), b = sequence(2, 4), c = sequence(3, 4);
  for (SequenceState* each : {&a, &b, &c}) scheduler.add(each);
  advance(scheduler.next());
  a.tokens = b.tokens = 5;
  a.draft_tokens = 3;
  scheduler.preempt(&a);
  scheduler.preempt(&c);  // it is not running: no effect
  EXPECT_EQ(a.cached, 0);
  EXPECT_EQ(pool.free_pages(), 3);
  EXPECT_EQ(scheduler.preemptions(), 1);
  EXPECT_EQ(summary(scheduler.next()), (std::vector<std::array<int64_t, 3>>{{2, 4, 5}, {1, 0, 5}}));
}

// A sequence of higher priority takes the place or the pages of the newest one of the lowest priority, and never of an
// equal one.
TEST(Scheduler, HigherPriorityTakesPlacesAndPages) {
  PagePool pool(4, 4);
  Scheduler scheduler(pool, 16, 2);
  SequenceState a = sequence(1, 4), b = sequence(2, 4), equal = sequence(3, 4), urgent = sequence(4, 4);
  urgent.priority = 1;
  scheduler.add(&a);
  scheduler.add(&b);
  advance(scheduler.next());
  a.tokens = b.tokens = 5;
  scheduler.add(&equal);
  EXPECT_EQ(summary(scheduler.next()), (std::vector<std::array<int64_t, 3>>{{1, 4, 5}, {2, 4, 5}}));
  EXPECT_EQ(scheduler.preemptions(), 0);
  scheduler.add(&urgent);
  EXPECT_EQ(summary(scheduler.next()), (std::vector<std::array<int64_t, 3>>{{1, 4, 5}, {4, 0, 4}}));
  EXPECT_EQ(scheduler.preemptions(), 1);
  EXPECT_EQ(b.cached, 0);
  EXPECT_TRUE(b.table.pages.empty());
  scheduler.remove(&urgent);
  advance(scheduler.next());  // b before `equal`, as it arrived earlier
  EXPECT_EQ(b.cached, 5);

  SequenceState wide = sequence(5, 16);  // needs all pages
  wide.priority = 7;
  scheduler.add(&wide);
  EXPECT_EQ(summary(scheduler.next()), (std::vector<std::array<int64_t, 3>>{{5, 0, 16}}));
  EXPECT_EQ(scheduler.preemptions(), 3);
}

}  // namespace
}  // namespace ingot::infer
