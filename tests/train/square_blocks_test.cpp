// The blocks in which squares of gradients are added up where sums are taken in slices.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "ops/adamw_bytes.h"
#include "train/sharding.h"

namespace ingot::train {
namespace {

// Blocks by slice, each as the rows and columns that it has of the whole tensor.
using Blocks = std::map<int64_t, std::vector<std::tuple<int64_t, int64_t, int64_t, int64_t>>>;

void add_blocks(Blocks& all, const spec::Slice& held, std::span<const spec::Slice> slices, int64_t first) {
  const std::vector<SquareBlock> blocks = square_blocks(held, slices, first);
  for (const SquareBlock& block : blocks) {
    EXPECT_TRUE(block.rows.count() * block.columns.count() <= ops::sum_squares_block || block.rows.count() == 1);
    spec::for_rows(held, block.rows.begin, block.rows.end, [&](const Range& rows) {
      all[block.slice].emplace_back(rows.begin, rows.end, held.columns.begin + block.columns.begin,
                                    held.columns.begin + block.columns.end);
    });
  }
  const std::vector<int64_t> ends = block_ends(blocks, held.columns.count());
  EXPECT_TRUE(std::ranges::is_sorted(ends));
  EXPECT_EQ(ends.back(), held.elements());
  for (const int64_t end : ends) {
    EXPECT_TRUE(end % 8 == 0 || end == ends.back());
    const int64_t row = end / held.columns.count();
    EXPECT_TRUE(std::ranges::none_of(
        blocks, [&](const SquareBlock& block) { return block.rows.begin < row && row < block.rows.end; }));
  }
}

// Of ranks that each hold so many of the slices, one after another.
Blocks blocks_of_ranks(std::span<const spec::Slice> slices, int64_t each) {
  Blocks all;
  for (int64_t first = 0; first < std::ssize(slices); first += each) {
    const std::span own = slices.subspan(static_cast<size_t>(first), static_cast<size_t>(each));
    spec::Slice held = own.front();
    held.columns.end = own.back().columns.end;
    if (own.front().rows != own.back().rows) {  // in the order of the whole
      held.rows.clear();
      for (size_t group = 0; group < own.front().rows.size(); ++group)
        held.rows.push_back({own.front().rows[group].begin, own.back().rows[group].end});
    }
    add_blocks(all, held, own, first);
  }
  return all;
}

// Columns; rows of two groups; rows of unequal numbers, also of a vector.
TEST(SquareBlocks, DependOnTheSliceAlone) {
  std::vector<spec::Slice> columns, groups, tokens, elements;
  for (int64_t i = 0; i < 4; ++i) {
    columns.push_back({{{0, 301}}, {1000 * i, 1000 * (i + 1)}});
    groups.push_back({{{50 * i, 50 * (i + 1)}, {200 + 25 * i, 200 + 25 * (i + 1)}}, {0, 4099}});
    tokens.push_back({{{1003 * i / 4, 1003 * (i + 1) / 4}}, {0, 4099}});
    elements.push_back({{{100'003 * i / 4, 100'003 * (i + 1) / 4}}, {0, 1}});
  }
  for (const std::vector<spec::Slice>& slices : {columns, groups, tokens, elements}) {
    const Blocks one = blocks_of_ranks(slices, 4);
    EXPECT_EQ(one.size(), 4);
    EXPECT_EQ(blocks_of_ranks(slices, 2), one);
    EXPECT_EQ(blocks_of_ranks(slices, 1), one);
  }
}

}  // namespace
}  // namespace ingot::train
