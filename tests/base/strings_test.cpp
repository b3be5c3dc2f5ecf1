#include "base/strings.h"

#include <gtest/gtest.h>

#include <cmath>

namespace ingot {
namespace {

TEST(FormatBytes, UsesBinaryUnits) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1 KiB");
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
  EXPECT_EQ(format_bytes((1 << 20) - 1), "1 MiB");
  EXPECT_EQ(format_bytes(uint64_t{27} << 29), "13.5 GiB");
  EXPECT_EQ(format_bytes(~uint64_t{0}), "16 EiB");
}

TEST(FormatDuration, UsesAtMostTwoUnits) {
  EXPECT_EQ(format_duration(0.25), "0.25 s");
  EXPECT_EQ(format_duration(12.3), "12 s");
  EXPECT_EQ(format_duration(59.6), "1m 00s");
  EXPECT_EQ(format_duration(185), "3m 05s");
  EXPECT_EQ(format_duration(2 * 3600 + 7 * 60), "2h 07m");
  EXPECT_EQ(format_duration(4 * 86400 + 3 * 3600), "4d 03h");
  EXPECT_EQ(format_duration(-1), "?");
  EXPECT_EQ(format_duration(NAN), "?");
  EXPECT_EQ(format_duration(1e300), "?");
}

TEST(FormatCount, KeepsThreeDigits) {
  EXPECT_EQ(format_count(950), "950");
  EXPECT_EQ(format_count(999.6), "1k");
  EXPECT_EQ(format_count(1234), "1.23k");
  EXPECT_EQ(format_count(134'515'008), "135M");
  EXPECT_EQ(format_count(7.24e9), "7.24B");
  EXPECT_EQ(format_count(1.5e12), "1.5T");
  EXPECT_EQ(format_count(-12), "-12");
}

TEST(Strings, EditDistanceHasKnownValues) {
  EXPECT_EQ(edit_distance("", ""), 0U);
  EXPECT_EQ(edit_distance("", "abc"), 3U);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
  EXPECT_EQ(edit_distance("nmae", "name"), 1U);
}

TEST(Strings, NearestFindsMisspelledWords) {
  const std::vector<std::string> words = {"optimizer", "schedule", "steps", "seed"};
  EXPECT_EQ(nearest("optimiser", words), "optimizer");
  EXPECT_EQ(nearest("SEED", words), "seed");
  EXPECT_EQ(nearest("step", words), "steps");
  EXPECT_EQ(nearest("precision", words), "");
}

TEST(Strings, Utf8IsValidatedAndMeasured) {
  for (const char* good :
       {"", "a", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\xf4\x8f\xbf\xbf", "\xed\x9f\xbf"}) {
    EXPECT_TRUE(is_utf8(good)) << good;
  }
  // A lone continuation byte, an overlong form, a truncated one, a surrogate, and a value above U+10FFFF.
  for (const char* bad : {"\x80", "\xc0\x80", "\xc3", "\xe0\x80\x80", "\xe2\x82", "\xed\xa0\x80", "\xf0\x80\x80\x80",
                          "\xf4\x90\x80\x80", "\xff", "a\xc3z"}) {
    EXPECT_FALSE(is_utf8(bad)) << bad;
  }
  EXPECT_EQ(num_columns("ab\xc3\xa9"), 3U);
  EXPECT_EQ(num_columns("e\xcc\x81"), 1U);
}

TEST(Strings, JsonEscapeReplacesInvalidBytes) {
  EXPECT_EQ(json_escape("a\"b\\c\n\t\r\x01\x7f"), "\"a\\\"b\\\\c\\n\\t\\r\\u0001\\u007f\"");
  EXPECT_EQ(json_escape("\xc3\xa9"), "\"\xc3\xa9\"");
  EXPECT_EQ(json_escape("a\xff\xc3"), "\"a\\ufffd\\ufffd\"");
  EXPECT_EQ(json_escape(std::string_view("\0", 1)), "\"\\u0000\"");
}

TEST(Strings, HexDigitsOfBothCasesAreParsed) {
  const std::string_view digits = "0123456789abcdef", upper = "0123456789ABCDEF";
  for (size_t i = 0; i < digits.size(); ++i) {
    EXPECT_EQ(hex_digit(digits[i]), static_cast<int>(i));
    EXPECT_EQ(hex_digit(upper[i]), static_cast<int>(i));
  }
  for (const char c : std::string_view("/:@G`g\xC3")) EXPECT_EQ(hex_digit(c), -1) << c;
}

TEST(Strings, SplitKeepsEmptyPartsAndTrimRemovesWhiteSpace) {
  EXPECT_EQ(split("a,,b", ','), (std::vector<std::string>{"a", "", "b"}));
  EXPECT_EQ(split("", ','), (std::vector<std::string>{""}));
  EXPECT_EQ(trim(" \t a b\r\n"), "a b");
  EXPECT_EQ(trim(" \n"), "");
}

}  // namespace
}  // namespace ingot
