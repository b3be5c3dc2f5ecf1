#include "infer/token_counts.h"

#include <gtest/gtest.h>

#include <vector>

namespace ingot::infer {
namespace {

std::map<int32_t, std::pair<int64_t, int64_t>> all(const TokenCounts& counts) {
  std::map<int32_t, std::pair<int64_t, int64_t>> found;
  for (const auto& [id, count] : counts.by_id()) found[id] = {count.prompt, count.output};
  return found;
}

TEST(TokenCounts, CountTokensAndDropRejectedDrafts) {
  const std::vector<int32_t> ids = {7, 2, 7, 2, 5};
  TokenCounts counts(ids, 3);
  const auto text = all(counts);
  EXPECT_EQ(text, (std::map<int32_t, std::pair<int64_t, int64_t>>{{2, {1, 1}}, {5, {0, 1}}, {7, {2, 0}}}));
  for (const int32_t id : {5, 9, 7, 9}) counts.add(id);
  EXPECT_EQ(all(counts),
            (std::map<int32_t, std::pair<int64_t, int64_t>>{{2, {1, 1}}, {5, {0, 2}}, {7, {2, 1}}, {9, {0, 2}}}));
  for (const int32_t id : {9, 7, 9, 5}) counts.remove(id);
  EXPECT_EQ(all(counts), text);
  EXPECT_TRUE(all(TokenCounts()).empty());
}

}  // namespace
}  // namespace ingot::infer
