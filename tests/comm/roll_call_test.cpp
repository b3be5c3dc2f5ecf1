#include "comm/roll_call.h"

#include <gtest/gtest.h>

namespace ingot::comm {
namespace {

TEST(RollCall, NamesWhoDoesNotAnswerElseWhoIsElsewhere) {
  RollCall call(1, {"a", "a", "b", "b"}, 100);
  call.answer(0, "all_reduce of 5");
  call.answer(2, "barrier");
  EXPECT_FALSE(call.over(101));
  EXPECT_EQ(call.behind("all_reduce of 5"), "rank 3 on b does not answer");
  EXPECT_TRUE(call.over(101 + RollCall::patience_s));
  call.answer(3, "all_reduce of 5");
  EXPECT_FALSE(call.over(100.5 + RollCall::patience_s)) << "another rank may know who does not answer";
  EXPECT_TRUE(call.over(101.5 + RollCall::patience_s));
  EXPECT_EQ(call.behind("all_reduce of 5"), "rank 2 on b is in barrier");
  call.answer(2, "all_reduce of 5");
  EXPECT_EQ(call.behind("all_reduce of 5"), "all other ranks wait there too");
}

TEST(RollCall, NamesFourAtMost) {
  const RollCall call(0, std::vector<std::string>(8, "n"), 0);
  EXPECT_EQ(call.behind(""),
            "rank 1 on n does not answer; rank 2 on n does not answer; rank 3 on n does not answer; "
            "rank 4 on n does not answer; and 3 more");
}

}  // namespace
}  // namespace ingot::comm
