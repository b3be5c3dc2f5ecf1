// Several tenants of one scheduler: each gets its fair share.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "infer/scheduler.h"
#include "tests/infer/scheduling.h"

namespace ingot::infer {
namespace {

std::set<int64_t> running(const Scheduler& scheduler) {
  std::set<int64_t> ids;
  for (const SequenceState* each : scheduler.running_list()) ids.insert(each->id);
  return ids;
}

// The tokens of a tenant in a batch.
int64_t tokens_of(const std::vector<ScheduledChunk>& batch, uint64_t tenant) {
  int64_t tokens = 0;
  for (const ScheduledChunk& piece : batch) tokens += piece.sequence->tenant == tenant ? piece.end - piece.begin : 0;
  return tokens;
}

// When one tenant has 128 waiting requests, another tenant's first request starts within the next round.
TEST(SchedulerTenants, ATenantsFirstRequestOvertakesAnothersLongQueue) {
  for (const int64_t places : {1, 4}) {
    PagePool pool(1000, 4);
    Scheduler scheduler(pool, 64, places);
    std::vector<SequenceState> all;
    for (int64_t id = 1; id <= 128; ++id) all.push_back(of_tenant(1, id, 5));
    all.push_back(of_tenant(2, 129, 5));
    for (size_t i = 0; i < 128; ++i) scheduler.add(&all[i]);
    admissions(scheduler, all, 20, [](const auto& so_far) { return so_far.size() >= 10; });
    scheduler.add(&all[128]);
    const auto place = [](const std::vector<int64_t>& order) { return std::find(order.begin(), order.end(), 129); };
    const std::vector<int64_t> order =
        admissions(scheduler, all, 20, [&](const auto& so_far) { return place(so_far) != so_far.end(); });
    // Requests that ran already are scheduled first. A round of 16 tokens admits four prompts of 5 before.
    ASSERT_NE(place(order), order.end()) << places;
    EXPECT_LE(place(order) - order.begin(), places + 4) << places;
    for (SequenceState& each : all) scheduler.remove(&each);
    EXPECT_EQ(pool.free_pages(), 1000);
  }
}

// A long prompt of one tenant takes pages from a tenant with several answers, chunk by chunk, while it holds fewer
// pages than that tenant, and keeps them.
TEST(SchedulerTenants, PagesAreReassignedUpToAnEqualShare) {
  PagePool pool(40, 4);
  Scheduler scheduler(pool, 64, 16);
  std::vector<SequenceState> short_ones;
  for (int64_t id = 1; id <= 10; ++id) short_ones.push_back(of_tenant(1, id, 15));
  for (SequenceState& each : short_ones) scheduler.add(&each);
  for (int i = 0; i < 4; ++i) advance(scheduler.next());
  ASSERT_EQ(pool.free_pages(), 0);
  SequenceState long_one = of_tenant(2, 11, 150);
  scheduler.add(&long_one);
  for (int i = 0; i < 8; ++i) advance(scheduler.next());
  EXPECT_EQ(running(scheduler), (std::set<int64_t>{1, 2, 3, 4, 11}));
  EXPECT_EQ(std::ssize(long_one.table.pages), 24);
  EXPECT_EQ(scheduler.preemptions(), 6);
  // When the others have ended, it gets all pages.
  for (SequenceState& each : short_ones) scheduler.remove(&each);
  while (long_one.cached < 150) {
    const std::vector<ScheduledChunk> batch = scheduler.next();
    ASSERT_FALSE(batch.empty());
    advance(batch);
  }
  scheduler.remove(&long_one);
  EXPECT_EQ(pool.free_pages(), 40);
}

// A request that cannot run yet because its adapter has no slot is among the next ones, although its tenant used more
// before.
TEST(SchedulerTenants, BlockedRequestsAdvanceEveryRound) {
  PagePool pool(2000, 4);
  Scheduler scheduler(pool, 64, 16);
  std::vector<SequenceState> others;
  for (int64_t id = 1; id <= 40; ++id) others.push_back(of_tenant(1, id, 20));
  for (SequenceState& each : others) scheduler.add(&each);
  SequenceState used = of_tenant(2, 41, 4), blocked = of_tenant(2, 42, 20);
  blocked.blocked = true;
  scheduler.add(&used);
  int64_t next_id = 43;
  const auto step = [&] {
    for (const ScheduledChunk& piece : scheduler.next()) {
      piece.sequence->cached = piece.end;
      if (piece.sequence == &used) ++used.tokens;
      if (piece.sequence->tenant != 1 || piece.end < 20) continue;
      scheduler.remove(piece.sequence);
      *piece.sequence = of_tenant(1, next_id++, 20);
      scheduler.add(piece.sequence);
    }
  };
  while (used.cached < 1000) step();
  scheduler.add(&blocked);
  scheduler.remove(&used);
  const auto is_next = [&] { return std::ranges::count(scheduler.next_waiting(16), &blocked) == 1; };
  ASSERT_FALSE(is_next());
  for (int i = 0; i < 500 && !is_next(); ++i) step();
  EXPECT_TRUE(is_next());
}

TEST(SchedulerTenants, TenantsGetEqualTokensForAnyRequestLength) {
  PagePool pool(1000, 4);
  Scheduler scheduler(pool, 64, 1);
  std::vector<SequenceState> all;
  for (int64_t id = 1; id <= 40; ++id) all.push_back(of_tenant(1, id, 60));
  for (int64_t id = 41; id <= 400; ++id) all.push_back(of_tenant(2, id, 2));
  for (SequenceState& each : all) scheduler.add(&each);
  const std::vector<int64_t> order =
      admissions(scheduler, all, 4, [](const auto& so_far) { return so_far.size() >= 200; });
  int64_t long_ones = 0, short_ones = 0;  // the last generated token is not computed
  for (const int64_t id : order) (id <= 40 ? long_ones : short_ones) += id <= 40 ? 63 : 5;
  EXPECT_LE(std::abs(long_ones - short_ones), 2 * 63 + 16);
}

TEST(SchedulerTenants, PriorityOrdersWithinATenantOnly) {
  PagePool pool(1000, 4);
  Scheduler scheduler(pool, 64, 1);
  std::vector<SequenceState> all;
  for (int64_t id = 1; id <= 20; ++id) all.push_back(of_tenant(1, id, 20, 100));
  all.push_back(of_tenant(2, 21, 20, -100));
  all.push_back(of_tenant(2, 22, 20, 0));
  for (SequenceState& each : all) scheduler.add(&each);
  const std::vector<int64_t> order = admissions(scheduler, all, 4, [](const auto&) { return false; });
  ASSERT_EQ(order.size(), 22U);
  const auto place = [&](int64_t id) { return std::find(order.begin(), order.end(), id) - order.begin(); };
  EXPECT_LE(place(22), 2);
  EXPECT_LE(place(21), 4);
  EXPECT_LT(place(22), place(21));
}

TEST(SchedulerTenants, HigherPriorityPreemptsWithinATenantOnly) {
  PagePool pool(1000, 4);
  Scheduler scheduler(pool, 64, 2);
  SequenceState other = of_tenant(2, 1, 4), low = of_tenant(1, 2, 4), high = of_tenant(1, 3, 4, 100);
  SequenceState higher = of_tenant(1, 4, 4, 100);
  for (SequenceState* each : {&other, &low}) scheduler.add(each);
  advance(scheduler.next());
  scheduler.add(&high);
  scheduler.add(&higher);
  advance(scheduler.next());
  std::set<int64_t> running;
  for (const SequenceState* each : scheduler.running_list()) running.insert(each->id);
  EXPECT_EQ(running,
            (std::set<int64_t>{1, 3}));  // the request of its own tenant was preempted; that was its only place
}

TEST(SchedulerTenants, NextWaitingFollowsTheRoundRobinOrder) {
  PagePool pool(1000, 4);
  Scheduler scheduler(pool, 64, 4);
  std::vector<SequenceState> all;
  for (int64_t id = 1; id <= 10; ++id) all.push_back(of_tenant(1, id, 16));
  for (int64_t id = 11; id <= 12; ++id) all.push_back(of_tenant(2, id, 16));
  for (SequenceState& each : all) {
    each.blocked = true;
    scheduler.add(&each);
  }
  EXPECT_TRUE(scheduler.next().empty());
  std::vector<int64_t> ids;
  for (const SequenceState* each : scheduler.next_waiting(5)) ids.push_back(each->id);
  EXPECT_EQ(ids, (std::vector<int64_t>{1, 11, 2, 12, 3}));
  EXPECT_EQ(scheduler.waiting(), 12);
}

TEST(SchedulerTenants, LongPromptsDoNotDelayAnotherTenantsDecoding) {
  PagePool pool(4000, 4);
  Scheduler scheduler(pool, 64, 16);
  std::vector<SequenceState> all;
  for (int64_t id = 1; id <= 8; ++id) all.push_back(of_tenant(1, id, 1000, 100));
  all.push_back(of_tenant(2, 9, 3));
  all.push_back(of_tenant(3, 10, 500));
  for (size_t i = 0; i < 4; ++i) scheduler.add(&all[i]);
  advance(scheduler.next());
  scheduler.add(&all[8]);
  SequenceState& stream = all[8];
  for (int step = 0; step < 40; ++step) {
    const std::vector<ScheduledChunk> batch = scheduler.next();
    ASSERT_GT(tokens_of(batch, 2), 0) << step;
    EXPECT_EQ(tokens_of(batch, 1) + tokens_of(batch, 2), 64);
    advance(batch);
    ++stream.tokens;
    if (step == 20) {
      for (size_t i = 4; i < 8; ++i) scheduler.add(&all[i]);
    }
  }
  // A third tenant's prompt gets half of the remaining tokens.
  scheduler.add(&all[9]);
  for (int step = 0; step < 10; ++step) {
    const std::vector<ScheduledChunk> batch = scheduler.next();
    EXPECT_EQ(tokens_of(batch, 2), 1);
    EXPECT_GE(tokens_of(batch, 3), 31);
    EXPECT_GE(tokens_of(batch, 1), 31);
    advance(batch);
    ++stream.tokens;
  }
}

TEST(SchedulerTenants, PagesAreTakenFromTheTenantsOwnLowerPrioritiesFirst) {
  PagePool pool(4, 4);
  Scheduler scheduler(pool, 64, 4);
  SequenceState low = of_tenant(1, 1, 4, -1), other = of_tenant(2, 2, 4, -100), high = of_tenant(1, 3, 8, 100);
  for (SequenceState* each : {&low, &other, &high}) scheduler.add(each);
  advance(scheduler.next());
  EXPECT_EQ(running(scheduler), (std::set<int64_t>{1, 2, 3}));
  high.tokens = 9;
  EXPECT_EQ(tokens_of(scheduler.next(), 1), 1);
  EXPECT_EQ(running(scheduler), (std::set<int64_t>{2, 3})) << "the other tenant's priority is not compared";
}

// Priorities of other tenants do not matter: the newest sequence of the tenant with the most pages is preempted.
TEST(SchedulerTenants, PriorityTakesNoPagesFromAnotherTenant) {
  PagePool pool(3, 4);
  Scheduler scheduler(pool, 64, 4);
  SequenceState first = of_tenant(2, 1, 4), high = of_tenant(1, 2, 4, 100), higher = of_tenant(1, 3, 4, 100);
  for (SequenceState* each : {&first, &high, &higher}) scheduler.add(each);
  advance(scheduler.next());
  for (SequenceState* each : {&first, &high, &higher}) each->tokens = 5;
  const std::vector<ScheduledChunk> batch = scheduler.next();
  EXPECT_EQ(summary(batch), (std::vector<std::array<int64_t, 3>>{{1, 4, 5}}));
  EXPECT_EQ(running(scheduler), (std::set<int64_t>{1, 2}));
}

TEST(SchedulerTenants, EndlessSequencesOfATenantYieldAPlaceToAnother) {
  for (const int64_t pages : {1000, 16}) {  // of 16 pages all are in use
    PagePool pool(pages, 4);
    Scheduler scheduler(pool, 64, 4);
    std::vector<SequenceState> all;
    for (int64_t id = 1; id <= 6; ++id) all.push_back(of_tenant(1, id, 15));
    for (int64_t id = 7; id <= 8; ++id) all.push_back(of_tenant(2, id, 8));
    for (size_t i = 0; i < 6; ++i) scheduler.add(&all[i]);
    advance(scheduler.next());
    EXPECT_EQ(running(scheduler), (std::set<int64_t>{1, 2, 3, 4}));
    scheduler.add(&all[6]);
    scheduler.add(&all[7]);
    for (SequenceState& each : all) each.tokens += each.cached > 0 ? 1 : 0;
    const std::vector<ScheduledChunk> batch = scheduler.next();
    EXPECT_EQ(tokens_of(batch, 2), 8);
    EXPECT_EQ(running(scheduler), (std::set<int64_t>{1, 2, 3, 7})) << "only the newest is preempted";
    EXPECT_EQ(scheduler.preemptions(), 1);
    advance(batch);
    // A running sequence keeps its place.
    for (int step = 0; step < 10; ++step) {
      for (SequenceState& each : all) each.tokens += each.cached == each.tokens && each.tokens < 16 ? 1 : 0;
      advance(scheduler.next());
      EXPECT_TRUE(running(scheduler).contains(7));
    }
    EXPECT_EQ(scheduler.preemptions(), 1);
  }
}

// The tenant that is first in turn has no running sequence to preempt; an urgent request of another tenant still
// preempts its own.
TEST(SchedulerTenants, AnUrgentSequencePreemptsItsOwnTenantWhoeverElseWaits) {
  PagePool pool(1000, 4);
  Scheduler scheduler(pool, 64, 2);
  SequenceState first = of_tenant(1, 1, 4), low = of_tenant(2, 2, 4);
  for (SequenceState* each : {&first, &low}) scheduler.add(each);
  advance(scheduler.next());
  SequenceState waits = of_tenant(1, 3, 4), urgent = of_tenant(2, 4, 4, 1);
  scheduler.add(&waits);
  scheduler.add(&urgent);
  first.tokens = low.tokens = 5;
  scheduler.next();
  EXPECT_EQ(running(scheduler), (std::set<int64_t>{1, 4}));
}

}  // namespace
}  // namespace ingot::infer
