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

// A counted repeat of a rule, as llama.cpp's converter writes maxLength, costs a few steps for each of its counts.
TEST(MaskLimits, OfARuleThatIsCounted) {
  std::vector<std::string> tokens = {"<end>"};
  for (char a = 'a'; a <= 'z'; ++a) {
    tokens.emplace_back(1, a);
    for (char b = 'a'; b <= 'z'; ++b) tokens.push_back({a, b});
  }
  for (const char* other : {"\"", "\\", "\\\"", "\\n", "a\"", "\\u", "0"}) tokens.emplace_back(other);
  const auto vocabulary = std::make_shared<const Vocabulary>(tokens, std::vector<int32_t>{0});
  const auto masks_of = [&](const char* root, const StateLimits& limits) {
    const std::string rules = std::string("root ::= ") + root + R"(
char ::= [^"\\\x7F\x00-\x1F] | [\\] (["\\bfnrt] | "u" hex{4})
hex ::= [0-9a-fA-F]
)";
    Matcher matcher(std::make_shared<const TokenGrammar>(compile_ebnf(rules), vocabulary, limits));
    std::vector<std::vector<uint32_t>> masks;
    for (const char c : "\"" + std::string(300, 'a') + "\\u00e9\"") {
      if (c == '\0') break;
      masks.emplace_back(vocabulary->num_words());
      matcher.fill_mask(masks.back());
      EXPECT_TRUE(matcher.accept_bytes({&c, 1}));
    }
    return masks;
  };
  const StateLimits limits = {.output_visits = 30 * std::ssize(vocabulary->nodes())};
  EXPECT_EQ(masks_of(R"("\"" char{300,1500} "\"")", limits), masks_of(R"("\"" char char{299,} "\"")", {}));
  // A rule that reaches itself is none of these.
  Matcher nested(std::make_shared<const TokenGrammar>(
      compile_ebnf("root ::= nest{2,3}\nnest ::= \"a\" | \"b\" nest \"c\""), vocabulary));
  EXPECT_TRUE(nested.accept_bytes("abbacc"));
  EXPECT_TRUE(nested.may_end());
  EXPECT_FALSE(nested.accept_bytes("c"));
  EXPECT_TRUE(nested.accept_bytes("a"));
  EXPECT_TRUE(nested.finished());
}

}  // namespace
}  // namespace ingot::grammar
