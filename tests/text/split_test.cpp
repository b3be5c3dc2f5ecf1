// The hand-written splitters compared with the patterns that they implement, run by PCRE2.
#include "text/split.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "text/regex.h"
#include "text/splitting.h"
#include "text/unicode.h"

namespace ingot::text {
namespace {

constexpr std::string_view gpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Letters, marks, digits, white space and others, many of which occur in the patterns. All are older than PCRE2's
// tables.
constexpr char32_t characters[] =
    U"abstremvldSTREMVLD'''''    \t\n\r\n\v\f "
    U"0123456789.,!?-_()\u00A0\u0085\u2003\u3000\u2028\u180E\u200B\uFEFF\u017F\u00E9"
    U"\u0301\u0E33\u0928\u4F60\u3042\uD55C\u05D0\u0661\u0967\u00BD\u2167\u00B2\U0001F600\u200D\uFE0F\U00010400\uE000"
    U"\u0378\u212A";

std::string random_text(std::mt19937& random) {
  std::string text;
  const size_t count = 1 + random() % 40;
  for (size_t i = 0; i < count; ++i) {
    const auto c = static_cast<uint32_t>(characters[random() % (std::size(characters) - 1)]);
    const size_t times = random() % 4 == 0 ? 1 + random() % 4 : 1;
    for (size_t k = 0; k < times; ++k) append_utf8(text, c);
  }
  return text;
}

std::vector<std::string> pieces_of(const Regex& regex, std::string_view text) {
  std::vector<std::string> pieces;
  for (const auto& [begin, end] : regex.find_all(text)) pieces.emplace_back(text.substr(begin, end - begin));
  return pieces;
}

using Splitter = std::function<void(std::string_view, std::vector<std::string_view>&)>;

void expect_same(std::string_view pattern, const Splitter& split, unsigned seed) {
  const Regex regex(pattern);
  std::mt19937 random(seed);
  for (int i = 0; i < 4000; ++i) {
    const std::string text = random_text(random);
    std::vector<std::string_view> views;
    split(text, views);
    EXPECT_EQ(std::vector<std::string>(views.begin(), views.end()), pieces_of(regex, text)) << text;
  }
}

TEST(Split, Gpt2AgreesWithItsPattern) { expect_same(gpt2, split_gpt2, 1); }

TEST(Split, Llama3AgreesWithItsPattern) {
  expect_same(
      find_pre_tokenizer_preset("llama-bpe")->patterns.front(),
      [](auto text, auto& out) { split_llama3(text, 3, out); }, 2);
}

TEST(Split, Qwen2AgreesWithItsPattern) {
  expect_same(
      find_pre_tokenizer_preset("qwen2")->patterns.front(), [](auto text, auto& out) { split_llama3(text, 1, out); },
      3);
}

TEST(Split, WhitespaceAndWordsAgreeWithTheirPatterns) {
  expect_same(R"(\S+)", split_white_space, 4);
  // The Whitespace step counts join controls as word characters; the patterns of Split do not.
  expect_same(R"([\w\x{200C}\x{200D}]+|[^\w\s\x{200C}\x{200D}]+)", split_words, 5);
}

}  // namespace
}  // namespace ingot::text
