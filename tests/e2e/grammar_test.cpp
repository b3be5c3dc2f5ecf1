// ingot grammar check, and MaskBench's files through ingot bench grammar.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/e2e/program.h"

namespace ingot::e2e {
namespace {

TEST(GrammarCheck, ChecksTextsAgainstASchema) {
  const Program program;
  write(program / "schema.json",
        R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
      "required": ["a"], "additionalProperties": false, "x-order": 1})");
  write(program / "texts.jsonl",
        "{\"a\": 1, \"b\": \"x\"}\n{\"b\":\"\\u0078\",\"a\":1e5}\n{\"a\":1,\"a\":2}\n{\"a\":1.5}\n {\"a\":1}");
  write(program / "one.json", "{\n  \"a\": 1\n}");
  const std::vector<std::string> of = {"grammar",       "check",
                                       "--json-schema", (program / "schema.json").string(),
                                       "--text",        (program / "one.json").string(),
                                       "--instances",   (program / "texts.jsonl").string()};
  const Json found = program.report(of);
  EXPECT_EQ(found["supported"], true);
  EXPECT_EQ(found["reason"], nullptr);
  EXPECT_EQ(found["results"], Json::parse("[true, true, true, false, false, true]"));
  EXPECT_EQ(found["unknown"], Json::parse(R"(["#/x-order"])"));
  std::vector<std::string> in_order = of;
  in_order.push_back("--in-order");
  EXPECT_EQ(program.report(in_order)["results"], Json::parse("[true, true, false, false, false, true]"));
  std::vector<std::string> strict = of;
  strict.push_back("--strict");
  const Json refused = program.report(strict);
  EXPECT_EQ(refused["supported"], false);
  EXPECT_EQ(refused["reason"], "unsupported: #/x-order is not known");
  EXPECT_EQ(refused["results"], Json::array());
}

TEST(GrammarCheck, ChecksGrammarsAndNamesMistakes) {
  const Program program;
  write(program / "rules.gbnf", "root ::= \"yes\" | \"no\"");
  write(program / "texts", "yes\r\nmaybe\n");
  const std::string rules = (program / "rules.gbnf").string();
  EXPECT_EQ(
      program.report({"grammar", "check", "--grammar", rules, "--instances", (program / "texts").string()})["results"],
      Json::parse("[true, false]"));
  program.refuses({"grammar", "check", "--text", rules}, 2, "exactly one of --json-schema and --grammar");
  program.refuses({"grammar", "check", "--grammar", (program / "none").string()}, 3, "none");
}

TEST(BenchGrammar, RunsMaskBenchFiles) {
  const Program program;
  std::filesystem::create_directory(program / "data");
  write(program / "data" / "a.json", R"({"schema": {"type": "object", "properties": {"b": {"type": "integer"}, "a": {}},
      "required": ["a"]}, "tests": [{"valid": true, "data": {"a": "\u00e9", "b": 1}}, {"valid": false, "data": {"b": 1}}]})");
  write(program / "data" / "b.json", R"({"schema": {"$ref": "nowhere"}, "tests": []})");
  write(program / "data" / "c.json", R"({"schema": {"uniqueItems": true}, "tests": [{"valid": true, "data": [{}]}]})");
  const Json found = program.report({"bench", "grammar", "--maskbench", (program / "data").string(), "--threads", "2"});
  EXPECT_EQ(found["schemas"], 3);
  EXPECT_EQ(found["compiled"], 2);
  EXPECT_EQ(found["right"], 1);
  EXPECT_EQ(found["valid_refused"], 1);
  EXPECT_EQ(found["invalid_accepted"], 0);
  EXPECT_EQ(found["reasons"],
            Json::parse(R"([{"count": 1, "reason": "unsupported: /$ref: the schema does not contain nowhere"}])"));
  write(program / "data" / "d.json", "[]");
  program.refuses({"bench", "grammar", "--maskbench", (program / "data").string()}, 3, "is not a MaskBench file");
  program.refuses({"bench", "grammar", "--maskbench", (program / "none").string()}, 3, "cannot be listed");
}

}  // namespace
}  // namespace ingot::e2e
