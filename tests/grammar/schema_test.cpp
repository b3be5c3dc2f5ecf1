// What is read of the keywords of a JSON Schema.
#include "grammar/schema.h"

#include <gtest/gtest.h>

namespace ingot::grammar {
namespace {

// Errors in what a value became name the keyword that has the value.
TEST(Schema, ConstantsPointToTheirKeyword) {
  for (const char* keyword : {"const", "enum"}) {
    const std::string value = R"({"a": [1]})";
    const std::string text = keyword == std::string("enum") ? "[" + value + "]" : value;
    SchemaSet set("{\"" + std::string(keyword) + "\": " + text + "}", {});
    const Schema& root = set[set.root()];
    ASSERT_EQ(root.constants.value().size(), 1U);
    EXPECT_EQ(set[root.constants->front().structure].pointer, "#/" + std::string(keyword));
  }
}

}  // namespace
}  // namespace ingot::grammar
