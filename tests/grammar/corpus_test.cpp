// Runs the grammar fuzz targets on their seeds: valid_* must be accepted, bad_* refused.
#include "tests/fuzz/grammars.h"
#include "tests/fuzz/replay.h"

namespace ingot::grammar {
namespace {

TEST(JsonSchemaCorpus, IsAcceptedOrRefusedByName) {
  ingot::fuzz::replay("json_schema", [](const std::string& text) { return fuzz::compile_schema(text); });
}

TEST(EbnfCorpus, IsAcceptedOrRefusedByName) {
  ingot::fuzz::replay("ebnf", [](const std::string& text) { return fuzz::compile_rules(text); });
}

TEST(PatternCorpus, IsAcceptedOrRefusedByName) {
  ingot::fuzz::replay("pattern", [](const std::string& text) { return fuzz::compile_pattern(text); });
}

}  // namespace
}  // namespace ingot::grammar
