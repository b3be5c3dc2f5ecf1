#include "text/word_cache.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <thread>

namespace ingot::text {
namespace {

std::vector<int32_t> ids_of(size_t count, int32_t first) {
  std::vector<int32_t> ids(count);
  std::iota(ids.begin(), ids.end(), first);
  return ids;
}

// Words that differ in one byte, in a NUL, or only in their length are different.
TEST(WordCache, DistinguishesWordsByEveryByteAndTheLength) {
  WordCache cache;
  std::vector<std::string> words;
  for (size_t size = 0; size <= 23; ++size) {
    words.emplace_back(size, 'a');
    if (size > 0) words.emplace_back(size, '\0');
    for (size_t at = 0; at < size; ++at) {
      words.emplace_back(size, 'a').at(at) = 'b';
      words.emplace_back(size, 'a').at(at) = '\xE1';
    }
  }
  for (size_t i = 0; i < words.size(); ++i) {
    const std::vector<int32_t> ids = ids_of(i % 10, static_cast<int32_t>(i));
    cache.insert(words[i], ids.data(), ids.size());
  }
  for (size_t i = 0; i < words.size(); ++i) {
    std::vector<int32_t> expected = {-1}, found = {-1};
    const std::vector<int32_t> ids = ids_of(i % 10, static_cast<int32_t>(i));
    expected.insert(expected.end(), ids.begin(), ids.end());
    ASSERT_TRUE(cache.find(words[i], found)) << i;
    EXPECT_EQ(found, expected) << i;
  }
}

TEST(WordCache, DoesNotCacheLongWords) {
  WordCache cache;
  std::vector<int32_t> found;
  const std::vector<int32_t> ids = ids_of(10, 0);
  cache.insert(std::string(24, 'a'), ids.data(), 1);
  cache.insert("word", ids.data(), 10);
  EXPECT_FALSE(cache.find(std::string(24, 'a'), found));
  EXPECT_FALSE(cache.find("word", found));
  EXPECT_FALSE(cache.find("other", found));
  EXPECT_TRUE(found.empty());
}

// With more words than slots, lookups are still right, and the first words stay cached.
TEST(WordCache, ThreadsShareItAndItMayBeFull) {
  WordCache cache;
  const auto word = [](int32_t i) { return "w" + std::to_string(i); };
  const auto work = [&](int32_t seed) {
    for (int32_t i = 0; i < 300000; ++i) {
      const int32_t number = i ^ seed;
      std::vector<int32_t> found;
      const std::vector<int32_t> ids = {number, number + 1};
      if (cache.find(word(number), found)) {
        ASSERT_EQ(found, ids);
      } else {
        cache.insert(word(number), ids.data(), ids.size());
      }
    }
  };
  std::thread other(work, 1);
  work(0);
  other.join();
  std::vector<int32_t> found;
  EXPECT_TRUE(cache.find(word(0), found));
}

}  // namespace
}  // namespace ingot::text
