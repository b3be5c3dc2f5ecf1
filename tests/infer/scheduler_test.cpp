#include "infer/scheduler.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/philox.h"

namespace ingot::infer {
namespace {

SequenceState sequence(int64_t id, int64_t tokens) {
  SequenceState state;
  state.id = id;
  state.tokens = tokens;
  return state;
}

// As the engine does when the batch has run: its tokens are in the cache.
void advance(const std::vector<Piece>& batch) {
  for (const Piece& piece : batch) piece.sequence->cached = std::min(piece.end, piece.sequence->tokens);
}

std::vector<std::array<int64_t, 3>> summary(const std::vector<Piece>& batch) {
  std::vector<std::array<int64_t, 3>> all;
  for (const Piece& piece : batch) all.push_back({piece.sequence->id, piece.begin, piece.end});
  return all;
}

TEST(Scheduler, FillsAPromptInPiecesThenDecodes) {
  PagePool pool(10, 4);
  Scheduler scheduler(pool, 8, 2);
  SequenceState a = sequence(1, 11);
  scheduler.add(&a);
  std::vector<Piece> batch = scheduler.next();
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

TEST(Scheduler, ANewcomerJoinsARunningBatch) {
  PagePool pool(100, 4);
  Scheduler scheduler(pool, 8, 2);
  SequenceState a = sequence(1, 3), b = sequence(2, 20), c = sequence(3, 2);
  scheduler.add(&a);
  advance(scheduler.next());
  a.tokens = 4;
  scheduler.add(&b);
  scheduler.add(&c);  // two may run at once: it waits
  const std::vector<Piece> batch = scheduler.next();
  EXPECT_EQ(summary(batch), (std::vector<std::array<int64_t, 3>>{{1, 3, 4}, {2, 0, 7}}));
  EXPECT_EQ(scheduler.waiting(), 1);
}

TEST(Scheduler, TheLastComerGivesItsPagesBack) {
  PagePool pool(3, 2);
  Scheduler scheduler(pool, 8, 2);
  SequenceState a = sequence(1, 2), b = sequence(2, 4);
  scheduler.add(&a);
  scheduler.add(&b);
  advance(scheduler.next());
  EXPECT_EQ(pool.free_pages(), 0);
  a.tokens = 3;  // needs a second page
  b.tokens = 5;
  const std::vector<Piece> batch = scheduler.next();
  EXPECT_EQ(summary(batch).front(), (std::array<int64_t, 3>{1, 2, 3}));
  EXPECT_EQ(scheduler.preemptions(), 1);
  EXPECT_EQ(b.cached, 0);
}

// Whatever comes, pages are never shared, never lost, and everybody gets done.
TEST(Scheduler, RandomLoadIsServedWhole) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    RandomStream random(seed, 1);
    PagePool pool(12, 4);
    Scheduler scheduler(pool, 16, 4);
    std::vector<SequenceState> all;
    std::vector<int64_t> length;
    for (int64_t i = 0; i < 12; ++i) {
      all.push_back(sequence(i, 1 + static_cast<int64_t>(random.below(20))));
      length.push_back(all.back().tokens + 1 + static_cast<int64_t>(random.below(20)));
    }
    for (SequenceState& s : all) scheduler.add(&s);
    int steps = 0;
    for (size_t done = 0; done < all.size() && steps < 10000; ++steps) {
      const std::vector<Piece> batch = scheduler.next();
      ASSERT_FALSE(batch.empty());
      int64_t tokens = 0;
      std::set<int32_t> pages;
      for (const SequenceState& s : all) {
        for (int32_t page : s.table.pages) EXPECT_TRUE(pages.insert(page).second) << "page given twice";
      }
      for (const Piece& piece : batch) {
        EXPECT_EQ(piece.begin, piece.sequence->cached);
        EXPECT_GE(static_cast<int64_t>(piece.sequence->table.pages.size()) * 4, piece.end);
        tokens += piece.end - piece.begin;
      }
      EXPECT_LE(tokens, 16);
      advance(batch);
      for (const Piece& piece : batch) {
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

TEST(Scheduler, WhoIsPreemptedWaitsInItsTurnAndIsFilledAnew) {
  PagePool pool(4, 4);
  Scheduler scheduler(pool, 16, 2);
  SequenceState a = sequence(1, 4), b = sequence(2, 4), c = sequence(3, 4);
  for (SequenceState* each : {&a, &b, &c}) scheduler.add(each);
  advance(scheduler.next());
  a.tokens = b.tokens = 5;
  a.guesses = 3;
  scheduler.preempt(&a);
  scheduler.preempt(&c);  // it does not run: nothing changes
  EXPECT_EQ(a.cached, 0);
  EXPECT_EQ(pool.free_pages(), 3);
  EXPECT_EQ(scheduler.preemptions(), 1);
  EXPECT_EQ(summary(scheduler.next()), (std::vector<std::array<int64_t, 3>>{{2, 4, 5}, {1, 0, 5}}));
}

// One of a higher priority takes the place, or the pages, of the lowest that came last; equals never do.
TEST(Scheduler, PriorityTakesPlacesAndPages) {
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
  advance(scheduler.next());  // b before `equal`: it came earlier
  EXPECT_EQ(b.cached, 5);

  SequenceState wide = sequence(5, 16);  // all pages
  wide.priority = 7;
  scheduler.add(&wide);
  EXPECT_EQ(summary(scheduler.next()), (std::vector<std::array<int64_t, 3>>{{5, 0, 16}}));
  EXPECT_EQ(scheduler.preemptions(), 3);
}

// Runs what is there until `over` holds or nothing is left: each sequence is removed when it has `output` tokens more
// than its prompt. Gives the order in which they were first computed.
template <class Over>
std::vector<int64_t> admissions(Scheduler& scheduler, std::vector<SequenceState>& all, int64_t output, Over over) {
  std::vector<int64_t> order;
  std::map<int64_t, int64_t> made;
  for (int step = 0; step < 10000 && !over(order); ++step) {
    const std::vector<Piece> batch = scheduler.next();
    if (batch.empty()) break;
    advance(batch);
    for (const Piece& piece : batch) {
      SequenceState* sequence = piece.sequence;
      if (!made.contains(sequence->id)) {
        made[sequence->id] = 0;
        order.push_back(sequence->id);
      }
      if (piece.end != sequence->tokens) continue;
      ++sequence->tokens;
      if (++made[sequence->id] == output) scheduler.remove(sequence);
    }
  }
  EXPECT_LE(order.size(), all.size());
  return order;
}

SequenceState of_tenant(uint64_t tenant, int64_t id, int64_t tokens, int priority = 0) {
  SequenceState state = sequence(id, tokens);
  state.tenant = tenant;
  state.priority = priority;
  return state;
}

// Whoever has 128 requests waiting, another's first one comes in the next round.
TEST(Scheduler, ALongQueueOfOneTenantIsPassedByAnothersFirstRequest) {
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
    // Those that ran already are seen again first; a round of 16 tokens lets four prompts of 5 in before.
    ASSERT_NE(place(order), order.end()) << places;
    EXPECT_LE(place(order) - order.begin(), places + 4) << places;
    for (SequenceState& each : all) scheduler.remove(&each);
    EXPECT_EQ(pool.free_pages(), 1000);
  }
}

TEST(Scheduler, TenantsGetTheSameTokensWhateverTheirRequestsLength) {
  PagePool pool(1000, 4);
  Scheduler scheduler(pool, 64, 1);
  std::vector<SequenceState> all;
  for (int64_t id = 1; id <= 40; ++id) all.push_back(of_tenant(1, id, 60));
  for (int64_t id = 41; id <= 400; ++id) all.push_back(of_tenant(2, id, 2));
  for (SequenceState& each : all) scheduler.add(&each);
  const std::vector<int64_t> order =
      admissions(scheduler, all, 4, [](const auto& so_far) { return so_far.size() >= 200; });
  int64_t long_ones = 0, short_ones = 0;  // tokens: the last that is made is not computed any more
  for (const int64_t id : order) (id <= 40 ? long_ones : short_ones) += id <= 40 ? 63 : 5;
  EXPECT_LE(std::abs(long_ones - short_ones), 2 * 63 + 16);
}

TEST(Scheduler, PriorityOrdersWhatOneTenantAsksAndPassesNoOther) {
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

TEST(Scheduler, AHigherPriorityTakesNoPlaceFromAnotherTenant) {
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
  EXPECT_EQ(running, (std::set<int64_t>{1, 3}));  // its own tenant's gave way, and one place is all it had
}

TEST(Scheduler, TheNextWaitingComeInTheOrderOfTurns) {
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

}  // namespace
}  // namespace ingot::infer
