#include "server/body_budget.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace ingot::server {
namespace {

TEST(BodyBudget, IsSharedAndReleased) {
  BodyBudget budget(100, 0);
  BodyBudget::Share first(budget);
  EXPECT_TRUE(first.grow(0));
  EXPECT_TRUE(first.grow(60));
  EXPECT_TRUE(first.grow(60));
  {
    BodyBudget::Share second(budget);
    EXPECT_TRUE(second.grow(40));
    EXPECT_FALSE(second.grow(41));
    EXPECT_FALSE(first.grow(61));
    EXPECT_EQ(budget.held(), 100U);
  }
  EXPECT_EQ(budget.held(), 60U);
  EXPECT_TRUE(first.grow(100));  // refusals reserved nothing
  EXPECT_FALSE(first.grow(101));
  first.release();
  BodyBudget::Share third(budget);
  EXPECT_TRUE(third.grow(100));
  EXPECT_FALSE(first.grow(1));
}

// A refusal takes nothing from others, not even temporarily.
TEST(BodyBudget, ARefusalReservesNothing) {
  BodyBudget budget(100, 0);
  constexpr int most = 200000;
  std::atomic<int> tries = 0;
  std::atomic<bool> over = false;
  std::thread greedy([&] {
    BodyBudget::Share share(budget);
    for (; !over; ++tries) EXPECT_FALSE(share.grow(101));
  });
  int refused = 0;
  for (int i = 0; i < most || tries < most; ++i) refused += BodyBudget::Share(budget).grow(100) ? 0 : 1;
  over = true;
  greedy.join();
  EXPECT_EQ(refused, 0);
  EXPECT_EQ(budget.held(), 0U);
}

TEST(BodyBudget, AnOwnerMayUseHalf) {
  BodyBudget budget(100, 0);
  BodyBudget::Share first(budget), second(budget), other(budget), nobodys(budget);
  first.set_owner(1);
  second.set_owner(1);
  other.set_owner(2);
  EXPECT_TRUE(first.grow(30));
  EXPECT_TRUE(second.grow(20));
  EXPECT_FALSE(second.grow(21));
  EXPECT_TRUE(other.grow(50));
  EXPECT_FALSE(nobodys.grow(1));
  first.release();
  EXPECT_TRUE(second.grow(50));
  EXPECT_FALSE(other.grow(51));
  second.release();
  other.release();
  EXPECT_EQ(budget.held(), 0U);
  EXPECT_TRUE(nobodys.grow(100));
}

TEST(BodyBudget, SmallBodiesAlwaysPass) {
  BodyBudget budget(100, 10);
  BodyBudget::Share first(budget);
  EXPECT_TRUE(first.grow(10));
  EXPECT_TRUE(first.grow(110));
  EXPECT_FALSE(first.grow(111));
  BodyBudget::Share second(budget);
  EXPECT_TRUE(second.grow(10));
  EXPECT_FALSE(second.grow(11));
  first.release();
  EXPECT_TRUE(second.grow(110));
}

}  // namespace
}  // namespace ingot::server
