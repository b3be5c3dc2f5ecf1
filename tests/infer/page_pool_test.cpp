#include "infer/page_pool.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/philox.h"

namespace ingot::infer {
namespace {

std::vector<int32_t> count_up(int32_t from, int32_t count) {
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < count; ++i) ids.push_back(from + i);
  return ids;
}

// A sequence that computes all of `ids` and ends.
void pass(PagePool& pool, const std::vector<int32_t>& ids, const PrefixOwner& owner = {}) {
  PageTable table;
  pool.find(table, ids, owner);
  ASSERT_TRUE(pool.extend(table, std::ssize(ids)));
  pool.cache(table, ids, std::ssize(ids), owner);
  pool.release(table);
}

int64_t found(PagePool& pool, const std::vector<int32_t>& ids, const PrefixOwner& owner = {}) {
  PageTable table;
  const int64_t tokens = pool.find(table, ids, owner);
  pool.release(table);
  return tokens;
}

TEST(PagePool, FullPagesAreReusedByTheirOwnerOnly) {
  PagePool pool(20, 4, true);
  const std::vector<int32_t> ids = count_up(10, 11);
  pass(pool, ids);
  EXPECT_EQ(found(pool, ids), 8);
  EXPECT_EQ(found(pool, count_up(10, 30)), 8);
  EXPECT_EQ(found(pool, count_up(10, 8)), 4) << "at least one token must be computed";
  EXPECT_EQ(found(pool, count_up(10, 9)), 8);
  EXPECT_EQ(found(pool, count_up(11, 11)), 0);
  std::vector<int32_t> other = ids;
  other[5] = 0;
  EXPECT_EQ(found(pool, other), 4);
  EXPECT_EQ(found(pool, ids, {1, 0}), 0);
  EXPECT_EQ(found(pool, ids, {0, 1}), 0);
  EXPECT_EQ(pool.free_pages(), 20);
}

TEST(PagePool, CachesOnlyWhenEnabled) {
  PagePool pool(20, 4);
  pass(pool, count_up(0, 12));
  EXPECT_EQ(found(pool, count_up(0, 12)), 0);
}

TEST(PagePool, EvictsTheLeastRecentlyUsedFromItsEnd) {
  PagePool pool(6, 4, true);
  pass(pool, count_up(0, 12));
  pass(pool, count_up(100, 12));
  EXPECT_EQ(found(pool, count_up(0, 13)), 12);  // used again
  PageTable table;
  ASSERT_TRUE(pool.extend(table, 8));
  EXPECT_EQ(found(pool, count_up(100, 13)), 4);
  EXPECT_EQ(found(pool, count_up(0, 13)), 12);
  EXPECT_FALSE(pool.extend(table, 28));
  EXPECT_TRUE(pool.extend(table, 24));
  EXPECT_EQ(found(pool, count_up(0, 13)), 0);
  pool.release(table);
  EXPECT_EQ(pool.free_pages(), 6);
}

// A prompt that fills its pages exactly recomputes its last page although it is cached: it must not hold both copies.
TEST(PagePool, ASequenceHoldsNoDuplicateOfACachedPage) {
  PagePool pool(4, 4, true);
  const std::vector<int32_t> ids = count_up(0, 16);
  pass(pool, count_up(0, 8));
  PageTable table;
  EXPECT_EQ(pool.find(table, count_up(0, 8), {}), 4);
  ASSERT_TRUE(pool.extend(table, 8));
  pool.cache(table, count_up(0, 8), 8, {});
  EXPECT_EQ(pool.free_pages(), 2);
  EXPECT_TRUE(pool.extend(table, 16)) << "the whole pool belongs to this sequence";
  pool.cache(table, ids, 16, {});
  pool.release(table);
  EXPECT_EQ(pool.free_pages(), 4);
  EXPECT_EQ(found(pool, count_up(0, 17)), 16);
  // Pages that no request matches, as after an embedding request, are not duplicated either.
  PageTable unasked;
  ASSERT_TRUE(pool.extend(unasked, 8));
  pool.cache(unasked, count_up(0, 8), 8, {});
  EXPECT_TRUE(pool.extend(unasked, 16));
  pool.release(unasked);
}

// Random sequences over few tokens start, grow and end: two sequences share a page only if they have the same prefix,
// and in the end all pages are free.
TEST(PagePool, PagesAreSharedOnlyByEqualPrefixes) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    RandomStream random(seed, 5);
    PagePool pool(24, 2, true);
    struct Sequence {
      PageTable table;
      std::vector<int32_t> ids;
      PrefixOwner owner;
    };
    std::map<int, Sequence> open;
    std::map<int32_t, std::vector<int32_t>> written;  // by page: the text that ends in it
    int64_t hits = 0;
    for (int step = 0; step < 400; ++step) {
      if (open.size() < 4 && random.below(2) == 0) {
        Sequence& s = open[step];
        for (uint64_t i = 0; i < 1 + random.below(9); ++i) s.ids.push_back(static_cast<int32_t>(random.below(2)));
        s.owner.salt = random.below(2);
        const int64_t tokens = pool.find(s.table, s.ids, s.owner);
        hits += tokens;
        for (int64_t p = 0; p < tokens / 2; ++p) {
          std::vector<int32_t> text(s.ids.begin(), s.ids.begin() + 2 * (p + 1));
          text.push_back(static_cast<int32_t>(s.owner.salt));
          EXPECT_EQ(written[s.table.pages[static_cast<size_t>(p)]], text);
        }
        continue;
      }
      if (open.empty()) continue;
      auto each = open.begin();
      std::advance(each, static_cast<int64_t>(random.below(open.size())));
      Sequence& s = each->second;
      const auto before = static_cast<int64_t>(s.table.pages.size());
      if (random.below(6) == 0 || !pool.extend(s.table, std::ssize(s.ids))) {
        pool.release(s.table);
        open.erase(each);
        continue;
      }
      std::multiset<int32_t> used;
      for (const auto& [name, other] : open) used.insert(other.table.pages.begin(), other.table.pages.end());
      for (int64_t p = before; p < std::ssize(s.table.pages); ++p) {
        EXPECT_EQ(used.count(s.table.pages[static_cast<size_t>(p)]), 1U) << "a new page that is in use";
      }
      for (int64_t p = s.table.shared; 2 * (p + 1) <= std::ssize(s.ids); ++p) {
        std::vector<int32_t> text(s.ids.begin(), s.ids.begin() + 2 * (p + 1));
        text.push_back(static_cast<int32_t>(s.owner.salt));
        written[s.table.pages[static_cast<size_t>(p)]] = text;
      }
      pool.cache(s.table, s.ids, std::ssize(s.ids), s.owner);
      s.ids.push_back(static_cast<int32_t>(random.below(2)));
    }
    EXPECT_GT(hits, 0);
    for (auto& [name, s] : open) pool.release(s.table);
    EXPECT_EQ(pool.free_pages(), 24);
    PageTable all;
    EXPECT_TRUE(pool.extend(all, 48));
    EXPECT_EQ(std::set<int32_t>(all.pages.begin(), all.pages.end()).size(), 24U);
  }
}

}  // namespace
}  // namespace ingot::infer
