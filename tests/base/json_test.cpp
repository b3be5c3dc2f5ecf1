#include "base/json.h"

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "base/config_node.h"
#include "base/error.h"

namespace ingot {
namespace {

std::string repeated(std::string_view piece, int times) {
  std::string text;
  for (int i = 0; i < times; ++i) text += piece;
  return text;
}

std::string lists(int depth) { return repeated("[", depth) + repeated("]", depth); }
std::string objects(int depth) { return repeated("{\"a\":", depth) + "1" + repeated("}", depth); }

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return fmt::format("{}: {}", name(error.kind()), error.message());
  }
  return "";
}

// All readers have one depth limit, far below the stack's: a hundred thousand levels get the same error as one too
// many.
TEST(Json, EveryReaderHasTheSameDepthLimit) {
  const std::string too_deep = fmt::format("nested deeper than {} levels", max_json_depth);
  for (const auto& make : {lists, objects}) {
    EXPECT_EQ(error_of([&] { parse_json(make(max_json_depth)); }), "");
    EXPECT_EQ(error_of([&] { parse_lenient_json(make(max_json_depth)); }), "");
    EXPECT_EQ(error_of([&] { parse_lenient_ordered_json(make(max_json_depth)); }), "");
    EXPECT_FALSE(try_parse_json(make(max_json_depth)).is_discarded());
    for (const int depth : {max_json_depth + 1, 100'000}) {
      EXPECT_EQ(error_of([&] { parse_json(make(depth)); }), "corrupt: is " + too_deep);
      EXPECT_EQ(error_of([&] { parse_lenient_json(make(depth)); }), "corrupt: is " + too_deep);
      EXPECT_EQ(error_of([&] { parse_lenient_ordered_json(make(depth)); }), "corrupt: is " + too_deep);
      EXPECT_TRUE(try_parse_json(make(depth)).is_discarded());
    }
  }
  EXPECT_EQ(error_of([] { ConfigNode::from_text(lists(max_json_depth), "x"); }), "");
  EXPECT_EQ(error_of([] { ConfigNode::from_text(lists(max_json_depth + 1), "x"); }), "usage: x:1: " + too_deep);
  EXPECT_EQ(error_of([] { ConfigNode::from_text(repeated("- ", max_json_depth + 1) + "1", "x"); }),
            "usage: x:1: " + too_deep);
}

// Duplicate keys: small objects are searched linearly, large ones have a hash table for each open object.
TEST(Json, DuplicateKeysAreErrorsInLargeObjectsToo) {
  const auto object = [](const std::string& inner, const std::string& last) {
    std::string text = "{";
    for (int i = 0; i < 100; ++i) text += '"' + std::to_string(i) + "\": " + (i == 80 ? inner : "1") + ", ";
    return text + '"' + last + "\": 2}";
  };
  EXPECT_EQ(parse_json(object("{}", "x")).size(), 101U);
  EXPECT_EQ(parse_json(object(object("1", "x"), "x"))["80"].size(), 101U);
  for (const char* written : {"0", "63", "64", "80", "99"}) {
    EXPECT_THROW(parse_json(object("{}", written)), Error) << written;
    EXPECT_THROW(parse_json(object(object("1", written), "x")), Error) << written;
  }
}

TEST(Json, BracketsInStringsAreNotLevels) {
  const std::string text = "[\"" + repeated("[{", 1000) + "\\\"" + repeated("[", 1000) + "\"]";
  EXPECT_EQ(error_of([&] { parse_lenient_json(text); }), "");
  EXPECT_EQ(parse_lenient_json("[" + repeated("[],", 1000) + "1]").size(), 1001U);
}

TEST(Json, LenientModeReadsWhatPythonReads) {
  EXPECT_EQ(parse_lenient_json(R"({"a": 1, "a": 2})")["a"], 2);
  EXPECT_EQ(parse_lenient_ordered_json(R"({"b": 1, "a": 2})").begin().key(), "b");
  for (const char* broken : {"", "[", "[1] 2", "{\"a\"}", "\"", "[1e999]", "]]]]["}) {
    EXPECT_TRUE(error_of([&] { parse_lenient_json(broken); }).starts_with("corrupt: is not JSON: ")) << broken;
    EXPECT_TRUE(try_parse_json(broken).is_discarded()) << broken;
  }
}

}  // namespace
}  // namespace ingot
