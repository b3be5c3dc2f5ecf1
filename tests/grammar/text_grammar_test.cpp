// Regular expressions that match whole texts, and choices between texts.
#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/grammar/texts.h"

namespace ingot::grammar {
namespace {

TEST(Regex, MatchesTheWholeText) {
  const GrammarPtr number = compile_regex("(\\d{3}-)?\\d{2}");
  for (const char* text : {"12", "123-45"}) EXPECT_TRUE(accepts(number, text)) << text;
  for (const char* text : {"", "1", "123", "a12", "12b", "123-4", "1234-56"})
    EXPECT_FALSE(accepts(number, text)) << text;
  const GrammarPtr anchored = compile_regex("^(a|\xC3\xA9)+$");
  for (const char* text : {"a", "a\xC3\xA9", "\xC3\xA9\xC3\xA9"}) EXPECT_TRUE(accepts(anchored, text)) << text;
  for (const char* text : {"", "\xC3", "ab"}) EXPECT_FALSE(accepts(anchored, text)) << text;
  // The text itself, not its spelling in a JSON string.
  EXPECT_TRUE(accepts(compile_regex("\"\\\\\\n"), "\"\\\n"));
  const GrammarPtr ahead = compile_regex("(?!ab)[a-c]{2}");
  EXPECT_TRUE(accepts(ahead, "ac"));
  EXPECT_FALSE(accepts(ahead, "ab"));
  EXPECT_TRUE(accepts(compile_regex("a?"), ""));
}

TEST(Regex, UnsupportedExpressionsAreErrors) {
  const auto kind = [](const std::string& pattern) {
    try {
      compile_regex(pattern);
    } catch (const Error& error) {
      return error.kind();
    }
    return ErrorKind::internal;
  };
  EXPECT_EQ(kind("(a"), ErrorKind::usage);
  EXPECT_EQ(kind("\xff"), ErrorKind::usage);
  EXPECT_EQ(kind("(?=a)b"), ErrorKind::usage) << "no text matches";
  EXPECT_EQ(kind("(a)\\1"), ErrorKind::unsupported);
  EXPECT_EQ(kind(std::string(100'000, 'a')), ErrorKind::resource);
}

TEST(Choice, AcceptsOneOfTheTexts) {
  const GrammarPtr grammar = compile_choice(std::vector<std::string>{"yes", "no", "not now", "\"\\\n\xC3\xA9"});
  for (const char* text : {"yes", "no", "not now", "\"\\\n\xC3\xA9"}) EXPECT_TRUE(accepts(grammar, text)) << text;
  for (const char* text : {"", "y", "not", "yesno", "not now "}) EXPECT_FALSE(accepts(grammar, text)) << text;
  EXPECT_TRUE(accepts(compile_choice(std::vector<std::string>{"a", "a", ""}), ""));
  EXPECT_THROW(compile_choice(std::vector<std::string>{}), Error);
  EXPECT_THROW(compile_choice(std::vector<std::string>{"\xff"}), Error);
}

}  // namespace
}  // namespace ingot::grammar
