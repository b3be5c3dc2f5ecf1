#include "server/body_budget.h"

#include <gtest/gtest.h>

namespace ingot::server {
namespace {

TEST(BodyBudget, IsSharedAndGivenBack) {
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
  }
  EXPECT_TRUE(first.grow(100));  // refusals took nothing
  EXPECT_FALSE(first.grow(101));
  first.release();
  BodyBudget::Share third(budget);
  EXPECT_TRUE(third.grow(100));
  EXPECT_FALSE(first.grow(1));
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
