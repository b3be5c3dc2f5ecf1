// Limits of the work for one mask, and for all masks of one output.
#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/grammar/texts.h"

namespace ingot::grammar {
namespace {

// How often masks could be made, a character a mask, until one passed a limit.
int masks_until_refused(const StateLimits& limits, int most) {
  std::vector<std::string> tokens = {"<end>"};
  for (const char* words : {"a", "b", "ab", "ba", "aab", "bbb", "abba"}) tokens.emplace_back(words);
  // Of its own: a vocabulary keeps walks that took long.
  const auto vocabulary = std::make_shared<const Vocabulary>(tokens, std::vector<int32_t>{0});
  Matcher matcher(std::make_shared<const TokenGrammar>(compile_regex("(a|b)*a(a|b){12}"), vocabulary, limits));
  std::vector<uint32_t> bits(vocabulary->num_words());
  for (int i = 0; i < most; ++i) {
    try {
      matcher.fill_mask(bits);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::resource);
      return i;
    }
    EXPECT_TRUE(matcher.accept_bytes((i * i + i / 5) % 3 == 0 ? "a" : "b"));
  }
  return most;
}

TEST(MaskLimits, OfOneMask) {
  EXPECT_EQ(masks_until_refused({}, 10), 10);
  EXPECT_EQ(masks_until_refused({.mask_visits = 10}, 10), 0);
  EXPECT_EQ(masks_until_refused({.mask_rows = 1}, 10), 0);
}

TEST(MaskLimits, OfAnOutput) {
  const int fits = masks_until_refused({.output_visits = 200}, 1000);
  EXPECT_GT(fits, 1);
  EXPECT_LT(fits, 1000);
  EXPECT_GT(masks_until_refused({.output_visits = 400}, 1000), fits);
  EXPECT_EQ(masks_until_refused({.output_visits = 200, .token_visits = 10000}, 1000), 1000);
}

}  // namespace
}  // namespace ingot::grammar
