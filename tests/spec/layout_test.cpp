#include "spec/layout.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "spec/context_rows.h"

namespace ingot::spec {
namespace {

TEST(Layout, NumbersRanksInTheOrderOfTheAxes) {
  const Layout layout{.dp = 3, .cp = 2, .pp = 5, .tp = 4};
  EXPECT_EQ(rank_of(layout, {.dp = 2, .cp = 1, .pp = 3, .tp = 1}), ((3 * 3 + 2) * 2 + 1) * 4 + 1);
  const Layout other{.dp = 3, .cp = 2, .pp = 5, .tp = 4, .order = axis_order("pp-dp-tp-cp")};
  EXPECT_EQ(rank_of(other, {.dp = 2, .cp = 1, .pp = 3, .tp = 1}), ((1 * 4 + 1) * 3 + 2) * 5 + 3);
  for (const Layout& each : {layout, other}) {
    for (int64_t rank = 0; rank < each.ranks(); ++rank) EXPECT_EQ(rank_of(each, place_of(each, rank)), rank);
  }
  EXPECT_EQ((Place{.dp = 2, .cp = 1}.replica(layout)), 5);
}

TEST(Layout, OrdersAreTheAxesOnceEach) {
  for (const char* text : {"tp-cp-dp-pp", "tp-pp-cp-dp", "pp-dp-cp-tp"}) EXPECT_EQ(text_of(axis_order(text)), text);
  EXPECT_EQ(axis_order("tp-cp-dp-pp"), default_order);
  for (const char* text : {"", "tp", "tp-cp-dp", "tp-cp-dp-pp-", "tp-tp-dp-pp", "TP-CP-DP-PP", "tp-cp-dp-replicas"}) {
    try {
      axis_order(text);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      EXPECT_EQ(error.message(),
                std::string("'") + text + "' is not tp, cp, dp and pp in some order, with '-' between them");
      EXPECT_EQ(error.hint(), "the default is tp-cp-dp-pp");
    }
  }
}

// Each row is one rank's, and the ranks have equally many pairs of a query and a key before it.
TEST(ContextRows, DivideTheRowsAndTheCausalWork) {
  for (const int64_t ranks : {1, 2, 3, 8}) {
    for (const CpCommType type : {CpCommType::a2a, CpCommType::allgather, CpCommType::p2p}) {
      const int64_t rows = 10 * context_parts(type, ranks);
      std::vector<int> owners(static_cast<size_t>(rows));
      for (int64_t rank = 0; rank < ranks; ++rank) {
        int64_t pairs = 0;
        for (const Range& range : context_rows(type, rank, ranks, rows)) {
          for (int64_t row = range.begin; row < range.end; ++row) {
            ++owners[static_cast<size_t>(row)];
            pairs += row + 1;
          }
        }
        if (type != CpCommType::a2a) EXPECT_EQ(pairs * ranks, rows * (rows + 1) / 2);
      }
      for (const int owner : owners) EXPECT_EQ(owner, 1);
    }
  }
  const std::vector<Range> first = {{0, 4}, {20, 24}}, last = {{8, 12}, {12, 16}}, half = {{12, 24}};
  EXPECT_EQ(context_rows(CpCommType::allgather, 0, 3, 24), first);
  EXPECT_EQ(context_rows(CpCommType::allgather, 2, 3, 24), last);
  EXPECT_EQ(context_rows(CpCommType::a2a, 1, 2, 24), half);
}

}  // namespace
}  // namespace ingot::spec
