// The seeds of the fuzz targets do what their names say.
#include "tests/fuzz/grammars.h"
#include "tests/fuzz/replay.h"

namespace ingot::grammar {
namespace {

TEST(Fuzz, SeedsOfJsonSchemas) {
  ingot::fuzz::replay("json_schema", [](const std::string& text) { return fuzz::compile_schema(text); });
}

TEST(Fuzz, SeedsOfEbnf) {
  ingot::fuzz::replay("ebnf", [](const std::string& text) { return fuzz::compile_rules(text); });
}

TEST(Fuzz, SeedsOfPatterns) {
  ingot::fuzz::replay("pattern", [](const std::string& text) { return fuzz::compile_pattern(text); });
}

}  // namespace
}  // namespace ingot::grammar
