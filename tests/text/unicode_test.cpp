#include "text/unicode.h"

#include <gtest/gtest.h>

#include <string>

namespace ingot::text {
namespace {

TEST(Unicode, WhiteSpaceIsTheStandardsList) {
  std::string found;
  for (uint32_t c = 0; c < 0x110000; ++c) {
    if ((char_class(c) & char_space) != 0) found += std::to_string(c) + " ";
  }
  EXPECT_EQ(found,
            "9 10 11 12 13 32 133 160 5760 8192 8193 8194 8195 8196 8197 8198 8199 8200 8201 8202 8232 8233 8239 8287 "
            "12288 ");
  EXPECT_EQ(char_class(0x110000), 0);
  EXPECT_EQ(char_class(invalid_byte), 0);
}

TEST(Unicode, DecodesEveryValidCharacterOnly) {
  for (uint32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    append_utf8(text, c);
    const Utf8Char decoded = decode_utf8(text, 0);
    ASSERT_EQ(decoded.code_point, c);
    ASSERT_EQ(decoded.size, text.size());
    for (size_t cut = 1; cut < text.size(); ++cut) {
      const std::string part = text.substr(0, cut);
      ASSERT_EQ(decode_utf8(part, 0).code_point, invalid_byte);
      ASSERT_EQ(incomplete_utf8_tail("ab" + part), cut);
    }
    ASSERT_EQ(incomplete_utf8_tail(text), 0u);
  }
  for (const std::string bad : {"\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xF0\x8F\xBF\xBF",
                                "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF"}) {
    EXPECT_EQ(decode_utf8(bad, 0).code_point, invalid_byte);
    EXPECT_FALSE(is_valid_utf8(bad));
    EXPECT_EQ(incomplete_utf8_tail(bad), 0u);
  }
}

// The examples of the Unicode standard, section 3.9, table 3-8.
TEST(Unicode, ReplacesMaximalInvalidParts) {
  const std::string r = "\xEF\xBF\xBD";
  EXPECT_EQ(replace_invalid_utf8("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"), r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(replace_invalid_utf8("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), r + r + r + r + "A");
}

TEST(Unicode, ChangesCaseAndNormalForm) {
  EXPECT_EQ(upper_case("stra\xC3\x9F"
                       "e \xC3\xA9"),
            "STRASSE \xC3\x89");
  EXPECT_EQ(lower_case("\xC3\x89\xCE\xA9 ABC"), "\xC3\xA9\xCF\x89 abc");
  EXPECT_EQ(normalize_nfc("e\xCC\x81"), "\xC3\xA9");
  EXPECT_EQ(normalize_nfc("e\xCC\x81\xFF"
                          "e\xCC\x81"),
            "\xC3\xA9\xFF\xC3\xA9");
}

// The package's parts use different Unicode versions; these characters were added in between.
TEST(Unicode, NormalizersUseThePackagesUnicodeVersions) {
  EXPECT_EQ(normalize_nfkc("\u32FF \u337B"), "\u32FF \u5E73\u6210");  // the first is of Unicode 12.1
  EXPECT_EQ(normalize_nfd("a\u0301\u08CA\u0323 a\u0301\u0323"), "a\u0301\u08CA\u0323 a\u0323\u0301");
  EXPECT_EQ(normalize_nfc("\U00011935\U00011930"), "\U00011935\U00011930");
  EXPECT_EQ(char_class(0x0301) & char_mark, char_mark);
  EXPECT_EQ(char_class(0x08D3) & char_mark, 0);
  EXPECT_EQ(char_class(0x08D3) & char_word, char_word);
  EXPECT_EQ(char_class('+') & char_punctuation, char_punctuation);
  EXPECT_EQ(char_class(0x2E42) & char_punctuation, char_punctuation);
  EXPECT_EQ(char_class(0x2E43) & char_punctuation, 0);
  EXPECT_EQ(char_class(0x11DE0) & (char_number | char_numeric), char_numeric);
  EXPECT_EQ(lower_case("\uA7DA"), "\uA7DB");
}

TEST(Unicode, TrailingSpaceCountsWholeCharacters) {
  EXPECT_EQ(trailing_space(""), 0u);
  EXPECT_EQ(trailing_space(" \u3000\u00A0\n"), 7u);
  EXPECT_EQ(trailing_space("a\u3000 b"), 0u);
  EXPECT_EQ(trailing_space("a\u3000 "), 4u);
  EXPECT_EQ(trailing_space(" \u3000\x80"), 0u);  // an invalid byte is not white space
  EXPECT_EQ(trailing_space("\xE3\x80"), 0u);
  EXPECT_EQ(trailing_space("\x80\x85 "), 1u);
}

}  // namespace
}  // namespace ingot::text
