#include "base/deficit_round_robin.h"

#include <gtest/gtest.h>

#include <vector>

namespace ingot {
namespace {

const auto everybody = [](uint64_t) { return true; };

TEST(DeficitRoundRobin, OwnersGetEqualSharesForAnyCostPerItem) {
  DeficitRoundRobin turns(10, 10000);
  const std::vector<int64_t> cost = {0, 3, 50, 7};  // by owner
  std::vector<int64_t> used(4, 0);
  for (uint64_t owner = 1; owner < 4; ++owner) turns.enter(owner);
  for (int i = 0; i < 1000; ++i) {
    const uint64_t owner = turns.next(everybody).value();
    turns.charge(owner, cost[owner]);
    used[owner] += cost[owner];
    // No owner is ahead by more than one round's quantum and the largest cost of an item.
    for (uint64_t other = 1; other < 4; ++other) EXPECT_LE(used[owner] - used[other], 2 * (10 + 50)) << i;
  }
}

TEST(DeficitRoundRobin, ANewOwnerWaitsAtMostOneRound) {
  DeficitRoundRobin turns(10, 10000);
  turns.enter(1);
  for (int i = 0; i < 100; ++i) turns.charge(turns.next(everybody).value(), 7);
  turns.enter(2);
  int before = 0;
  while (turns.next(everybody) == 1U) {
    turns.charge(1, 7);
    ++before;
  }
  EXPECT_LE(before, 2);
}

TEST(DeficitRoundRobin, AnOwnerThatUsedMoreThanItsQuantumPausesUntilRepaid) {
  DeficitRoundRobin turns(10, 10000);
  turns.enter(1);
  turns.enter(2);
  EXPECT_EQ(turns.next(everybody), 1U);
  turns.charge(1, 1000);
  int alone = 0;
  while (turns.next(everybody) == 2U) {
    turns.charge(2, 10);
    ++alone;
  }
  EXPECT_GE(alone, 98);
  EXPECT_LE(alone, 101);
}

TEST(DeficitRoundRobin, NegativeChargesRefund) {
  DeficitRoundRobin turns(10, 10000);
  turns.enter(1);
  turns.enter(2);
  EXPECT_EQ(turns.next(everybody), 1U);
  turns.charge(1, 1000);
  turns.charge(1, -1000);
  EXPECT_EQ(turns.next(everybody), 1U);
}

TEST(DeficitRoundRobin, OwnersThatAreNotReadyAreSkippedWithoutCredit) {
  DeficitRoundRobin turns(10, 10000);
  turns.enter(1);
  turns.enter(2);
  const auto second = [](uint64_t owner) { return owner == 2; };
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(turns.next(second), 2U);
    turns.charge(2, 10);
  }
  int first = 0;
  for (int i = 0; i < 20; ++i) {
    const uint64_t owner = turns.next(everybody).value();
    turns.charge(owner, 10);
    first += owner == 1;
  }
  EXPECT_LE(first, 11);
  EXPECT_EQ(turns.next([](uint64_t) { return false; }), std::nullopt);
}

TEST(DeficitRoundRobin, UseWithoutCompetitorsLeavesNoDebt) {
  DeficitRoundRobin turns(10, 10000);
  turns.enter(1);
  for (int i = 0; i < 100; ++i) turns.charge(turns.next(everybody).value(), 1000);
  turns.enter(2);
  int first = 0;
  for (int i = 0; i < 20; ++i) {
    const uint64_t owner = turns.next(everybody).value();
    turns.charge(owner, 10);
    first += owner == 1;
  }
  EXPECT_GE(first, 9);
}

TEST(DeficitRoundRobin, DebtIsBounded) {
  DeficitRoundRobin turns(10, 50);
  turns.enter(1);
  turns.enter(2);  // it has one request in flight and none waiting
  for (int i = 0; i < 100; ++i) turns.charge(1, 1000);
  int second = 0;
  while (turns.next(everybody) == 2U) {
    turns.charge(2, 10);
    ++second;
  }
  EXPECT_LE(second, 7);
  EXPECT_GE(second, 4);
}

TEST(DeficitRoundRobin, OwnersWithoutRequestsAreRemoved) {
  DeficitRoundRobin turns(10, 10000);
  turns.enter(1);
  turns.enter(1);
  turns.charge(1, 1000);
  turns.leave(1);
  EXPECT_EQ(turns.next(everybody), 1U);
  turns.leave(1);
  EXPECT_EQ(turns.next(everybody), std::nullopt);
  turns.leave(1);
  turns.charge(1, 5);
  EXPECT_EQ(turns.next(everybody), std::nullopt);
}

TEST(DeficitRoundRobin, ACopyPredictsTheOrderWithoutChangingIt) {
  DeficitRoundRobin turns(10, 10000);
  for (uint64_t owner = 1; owner < 5; ++owner) turns.enter(owner);
  DeficitRoundRobin copy = turns;
  std::vector<uint64_t> expected, given;
  for (int i = 0; i < 50; ++i) {
    expected.push_back(copy.next(everybody).value());
    copy.charge(expected.back(), 4 + i % 9);
  }
  for (int i = 0; i < 50; ++i) {
    given.push_back(turns.next(everybody).value());
    turns.charge(given.back(), 4 + i % 9);
  }
  EXPECT_EQ(expected, given);
}

}  // namespace
}  // namespace ingot
