// Limits on the work for one mask, and for all masks of one output.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/grammar/texts.h"

namespace ingot::grammar {
namespace {

// The number of masks, one per character, until a limit is exceeded.
int masks_until_refused(const StateLimits& limits, int most) {
  std::vector<std::string> tokens = {"<end>"};
  for (const char* words : {"a", "b", "ab", "ba", "aab", "bbb", "abba"}) tokens.emplace_back(words);
  // A vocabulary of its own: vocabularies cache long walks.
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

TEST(MaskLimits, WorkOfOneMaskIsBounded) {
  EXPECT_EQ(masks_until_refused({}, 10), 10);
  EXPECT_EQ(masks_until_refused({.mask_visits = 10}, 10), 0);
  EXPECT_EQ(masks_until_refused({.mask_rows = 1}, 10), 0);
}

TEST(MaskLimits, WorkOfAnOutputIsBounded) {
  const int fits = masks_until_refused({.output_visits = 200}, 1000);
  EXPECT_GT(fits, 1);
  EXPECT_LT(fits, 1000);
  EXPECT_GT(masks_until_refused({.output_visits = 400}, 1000), fits);
  EXPECT_EQ(masks_until_refused({.output_visits = 200, .token_visits = 10000}, 1000), 1000);
}

// char{min,max} written out without counts; max -1 means no limit.
std::string written_out(int min, int max) {
  std::string text;
  for (int i = 0; i < min; ++i) text += " char";
  for (int i = min; i < max; ++i) text += " (char";
  for (int i = min; i < max; ++i) text += ")?";
  return max < 0 ? text + " char*" : text;
}

// A counted repeat of a rule, as llama.cpp's converter writes maxLength, costs a few steps per count.
TEST(MaskLimits, CountedRepeatsOfARuleAreCheap) {
  std::vector<std::string> tokens = {"<end>"};
  for (char a = 'a'; a <= 'z'; ++a) {
    tokens.emplace_back(1, a);
    for (char b = 'a'; b <= 'z'; ++b) tokens.push_back({a, b});
  }
  for (const char* other : {"\"", "\\", "\\\"", "\\n", "a\"", "\\u", "0"}) tokens.emplace_back(other);
  const auto vocabulary = std::make_shared<const Vocabulary>(tokens, std::vector<int32_t>{0});
  // The number of masks before each byte, up to a refused one. When `chars` has no count, no rule has one.
  const auto masks_of = [&](const std::string& chars, const std::string& text, const StateLimits& limits) {
    const std::string four = chars.find('{') == std::string::npos ? "hex hex hex hex" : "hex{4}";
    const std::string rules = R"(root ::= "\"" )" + chars + R"( "\""
char ::= [^"\\\x7F\x00-\x1F] | [\\] (["\\bfnrt] | "u" )" +
                              four + R"()
hex ::= [0-9a-fA-F]
)";
    Matcher matcher(std::make_shared<const TokenGrammar>(compile_ebnf(rules), vocabulary, limits));
    std::vector<std::vector<uint32_t>> masks;
    for (const char c : text) {
      masks.emplace_back(vocabulary->num_words());
      matcher.fill_mask(masks.back());
      if (!matcher.accept_bytes({&c, 1})) break;
    }
    return masks;
  };
  const StateLimits limits = {.output_visits = 30 * std::ssize(vocabulary->nodes())};
  const std::string many = "\"" + std::string(300, 'a') + "\\u00e9\"";
  const auto masks = masks_of("char{300,1500}", many, limits);
  EXPECT_EQ(masks.size(), many.size());
  EXPECT_EQ(masks, masks_of(written_out(300, -1), many, {}));
  for (const auto& [min, max] : {std::pair(3, 5), {2, 2}, {0, 4}, {1, 3}, {4, -1}}) {
    const std::string count = max < 0 ? fmt::format("char{{{},}}", min) : fmt::format("char{{{},{}}}", min, max);
    for (const char* few : {"\"", "\"ab\"", "\"a\\u00e9b\"", "\"a\\u00e9bc\"", "\"abcd\\n\"", "\"a\\nb\\u00e9cdef\""}) {
      EXPECT_EQ(masks_of(count, few, {}), masks_of(written_out(min, max), few, {})) << count << few;
    }
  }
  // A rule that refers to itself is not inlined.
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
