// ingot eval without a model: task files, tokens of choices, metrics, statistics, and the table. Golden ROUGE scores of
// rouge-score are in tests/golden/eval (tools/reference/make_eval_golden.py).
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "eval/encode.h"
#include "eval/results.h"
#include "eval/score.h"
#include "eval/statistics.h"
#include "eval/task.h"
#include "eval/text_metrics.h"
#include "tests/data/temp_folder.h"
#include "tests/locations.h"

namespace ingot::eval {
namespace {

using data::error_of;
using data::expect_error;
using data::TempFolder;

const std::filesystem::path golden = std::filesystem::path(test_data) / "eval";

TEST(Task, LinesAreRecognisedByTheirFields) {
  const TempFolder folder;
  const auto path = folder.file(
      "capitals.v2.jsonl",
      "\xef\xbb\xbf{\"context\": \"2 + 2 =\", \"choices\": [\"4\", \"5\"], \"answer\": 0, \"id\": 7, \"note\": "
      "{}}\r\n\n"
      R"({"messages": [{"role": "user", "content": "q"}], "tools": [{"name": "f"}], "choices": ["a", "b"], "answer": "b"})"
      "\n"
      R"({"prompt": "Say", "reference": "x", "regex": "^a", "extract": "b+", "json": true, "max_tokens": 5, "stop": "\n"})"
      "\n"
      R"({"messages": [{"role": "user", "content": "q"}], "reference": ["x", "y"], "stop": ["a", "b"]})");
  const Task task = read_task(path);
  EXPECT_EQ(task.name, "capitals.v2");
  ASSERT_EQ(task.choices.size(), 2U);
  EXPECT_EQ(task.choices[0].prompt.text, "2 + 2 =");
  EXPECT_EQ(task.choices[0].delimiter, " ");
  EXPECT_EQ(task.choices[0].line, 1);
  EXPECT_EQ(task.choices[1].answer, 1U);
  EXPECT_EQ(task.choices[1].delimiter, "");
  EXPECT_EQ(task.choices[1].prompt.messages, R"([{"role":"user","content":"q"}])");
  EXPECT_EQ(task.choices[1].prompt.tools, R"([{"name":"f"}])");
  ASSERT_EQ(task.answers.size(), 2U);
  const AnswerItem& answer = task.answers[0];
  EXPECT_EQ(answer.line, 4);
  EXPECT_EQ(answer.references, std::vector<std::string>{"x"});
  EXPECT_EQ(answer.regex, "^a");
  EXPECT_EQ(answer.extract, "b+");
  EXPECT_TRUE(answer.json);
  EXPECT_EQ(answer.max_tokens, 5);
  EXPECT_EQ(answer.stop, std::vector<std::string>{"\n"});
  EXPECT_EQ(task.answers[1].references.size(), 2U);
  EXPECT_EQ(task.answers[1].max_tokens, 128);
}

TEST(Task, ALineThatIsNoTaskItemIsNamed) {
  const TempFolder folder;
  const std::pair<std::string, const char*> lines[] = {
      {"{\"context\": ", "is not JSON"},
      {"[1]", "not an object"},
      {R"({"text": "a"})", "neither \"choices\" nor a prompt"},
      {R"({"prompt": "a"})", "to check the answer with"},
      {R"({"prompt": "", "reference": "a"})", "the prompt is empty"},
      {R"({"prompt": "a", "messages": [{"role": "user", "content": "q"}], "reference": "a"})",
       "only one may be the prompt"},
      {R"({"prompt": "a", "reference": 3})", "\"reference\" must be a string or a list of strings"},
      {R"({"prompt": "a", "reference": []})", "\"reference\" must be"},
      {R"({"prompt": "a", "refrence": "b"})", "to check the answer with"},
      {R"({"prompt": "a", "reference": "b", "regx": "b"})", "did you mean \"regex\"?"},
      {R"({"prompt": "a", "regex": "("})", "does not compile"},
      {R"({"prompt": "a", "extract": "b", "json": true})", "\"extract\" needs a \"reference\""},
      {R"({"prompt": "a", "json": 1})", "\"json\" must be true or false"},
      {R"({"prompt": "a", "json": true, "max_tokens": 0})", "\"max_tokens\" must be a whole number"},
      {R"({"prompt": "a", "json": true, "max_tokens": 1e99})", "\"max_tokens\" must be a whole number"},
      {R"({"prompt": "a", "json": true, "stop": ""})", "a \"stop\" is empty"},
      {R"({"prompt": "a", "json": true, "tools": []})", "\"tools\" must be a list, beside"},
      {R"({"prompt": "a", "reference": ")" + std::string(max_reference_bytes + 1, 'x') + "\"}", "longer than 65536"},
      {R"({"messages": [{"role": "user"}], "json": true})", "message 0 has no \"content\""},
      {R"({"messages": [], "json": true})", "at least one message"},
      {R"({"context": "a", "choices": ["b"], "answer": 0})", "at least two"},
      {R"({"context": "a", "choices": ["b", ""], "answer": 0})", "one of the \"choices\" is empty"},
      {R"({"context": "a", "choices": ["b", "b"], "answer": 0})", "two of the \"choices\" are the same"},
      {R"({"context": "a", "choices": ["b", "c"]})", "\"answer\" is missing"},
      {R"({"context": "a", "choices": ["b", "c"], "answer": 2})", "from 0 to 1"},
      {R"({"context": "a", "choices": ["b", "c"], "answer": "d"})", "not one of the choices"},
      {R"({"context": "a", "choices": ["b", "c"], "answer": 0, "regex": "a"})", "unknown key \"regex\""}};
  for (const auto& [line, words] : lines) {
    const auto path = folder.file("t.jsonl", "{\"prompt\": \"a\", \"json\": true}\n" + line + "\n");
    expect_error(error_of([&] { read_task(path); }), ErrorKind::corrupt, {"t.jsonl line 2: ", words});
  }
  expect_error(error_of([&] { read_task(folder.file("e.jsonl", "\n")); }), ErrorKind::corrupt, {"e.jsonl", "empty"});
  expect_error(error_of([&] { read_task(folder.path() / "none.jsonl"); }), ErrorKind::not_found, {"none.jsonl"});
}

TEST(TextMetrics, RougeLAgreesWithRougeScore) {
  const auto cases = nlohmann::json::parse(read_file(golden / "golden.json"))["rouge"];
  ASSERT_GE(cases.size(), 40U);
  for (const auto& each : cases) {
    const std::string answer = each[0], reference = each[1];
    EXPECT_DOUBLE_EQ(rouge_l(answer, reference), each[2].get<double>()) << answer << " | " << reference;
  }
  const std::vector<std::string> references = {"no word", "The cat!"};
  EXPECT_EQ(rouge_l("the cat", references), 1);
}

TEST(TextMetrics, OtherMetricsHaveKnownValues) {
  const std::vector<std::string> references = {" 42\n", "forty two"};
  EXPECT_TRUE(exact_match("\t42 ", references));
  EXPECT_TRUE(exact_match("forty two", references));
  EXPECT_FALSE(exact_match("Forty two", references));
  EXPECT_FALSE(exact_match("42.", references));
  EXPECT_EQ(extracted("a 1 b 22", "\\d+"), "1");
  EXPECT_EQ(extracted("so: #### 18.", "####\\s*\\K\\d+"), "18");
  EXPECT_EQ(extracted("none", "\\d+"), "");
  EXPECT_TRUE(regex_match("say Yes", "(?i)\\byes\\b"));
  EXPECT_FALSE(regex_match("yesterday", "(?i)\\byes\\b"));
  for (const char* json : {"{}", " [1, 2]\n", "\"a\"", "null", "1e3"}) EXPECT_TRUE(is_json(json)) << json;
  for (const char* text : {"", " ", "{", "{'a': 1}", "[1,]", "{} {}", "NaN", "```json\n{}\n```"}) {
    EXPECT_FALSE(is_json(text)) << text;
  }
}

TEST(Score, NormalisationDecidesWhichChoiceWins) {
  ChoiceItem item;
  // The choices have 3 characters in 9 bytes, 4 in 4, and 6 in 6.
  item.choices = {"\xe4\xb8\xad\xe5\x9b\xbd\xe4\xba\xba", "four", "longer"};
  item.answer = 0;
  const auto values = [&](const std::vector<double>& logprobs, const std::vector<int64_t>& tokens) {
    std::string text;
    for (const Score& score : choice_logprobs(item, logprobs, tokens)) {
      text += fmt::format("{} {} ", score.metric, score.value);
    }
    return text;
  };
  EXPECT_EQ(values({-9, -10, -18}, {1, 2, 3}), "acc 1 acc_norm 0 acc_bytes 1 acc_tokens 0 ");
  EXPECT_EQ(values({-7, -12, -20}, {9, 1, 1}), "acc 1 acc_norm 1 acc_bytes 1 acc_tokens 1 ");
  EXPECT_EQ(values({-9, -8, -24}, {9, 1, 1}), "acc 0 acc_norm 0 acc_bytes 1 acc_tokens 1 ");
  EXPECT_EQ(values({-5, -5, -5}, {1, 1, 1}), "acc 1 acc_norm 0 acc_bytes 1 acc_tokens 1 ")
      << "ties go to the first choice";
}

TEST(Score, AnswersAreScoredByTheRequestedMetric) {
  AnswerItem item;
  item.references = {"18"};
  item.extract = "\\d+$";
  item.regex = "=";
  item.json = true;
  std::vector<std::string> metrics;
  for (const Score& score : score_answer(item, "9 + 9 = 18")) {
    metrics.push_back(fmt::format("{} {} {:.3f}", score.metric, score.share, score.value));
  }
  EXPECT_EQ(metrics, (std::vector<std::string>{"exact_match true 1.000", "rougeL false 0.500", "regex_match true 1.000",
                                               "json_valid true 0.000"}));
}

TEST(Statistics, WilsonIntervalAgreesWithNewcombe) {
  // Newcombe, "Two-sided confidence intervals for the single proportion", 1998, table I, method 3.
  const double cases[][4] = {
      {81, 263, 0.2553, 0.3662}, {15, 148, 0.0624, 0.1605}, {0, 20, 0, 0.1611}, {1, 29, 0.0061, 0.1718}};
  for (const auto& [right, items, low, high] : cases) {
    EXPECT_NEAR(wilson(right, items).low, low, 5e-5) << right;
    EXPECT_NEAR(wilson(right, items).high, high, 5e-5) << right;
  }
  const std::vector<double> scores = {1, 0, 1, 1};
  const Estimate estimate = share(scores);
  EXPECT_EQ(estimate.value, 0.75);
  EXPECT_DOUBLE_EQ(*estimate.standard_error, 0.25);  // sqrt(3/4 1/4 4/3 / 4)
  EXPECT_EQ(estimate.interval->low, wilson(3, 4).low);
}

TEST(Statistics, BootstrapOfAMeanIsNearTheNormalInterval) {
  std::vector<double> scores;
  for (int i = 0; i < 400; ++i) scores.push_back(std::sin(i * 12.9898) * 3 + 1);
  const Estimate estimate = mean(scores);
  ASSERT_TRUE(estimate.standard_error && estimate.interval);
  const double width = 2 * 1.96 * *estimate.standard_error;
  EXPECT_NEAR(estimate.interval->high - estimate.interval->low, width, 0.1 * width);
  EXPECT_NEAR((estimate.interval->high + estimate.interval->low) / 2, estimate.value, 0.1 * width);
  const Estimate again = mean(scores);
  EXPECT_EQ(again.interval->low, estimate.interval->low) << "the seed is the same";
  const Estimate one = mean(std::vector<double>{2});
  EXPECT_EQ(one.value, 2);
  EXPECT_FALSE(one.standard_error || one.interval);
}

TEST(Results, DifferencesArePaired) {
  // Base and tuned model differ by exactly 1 on every item, however much items vary.
  Metric metric{"rougeL", false, {{0, 10, 20, 30}, {1, 11, 21, 31}}};
  const Row row = row_of("t", metric);
  EXPECT_EQ(row.difference->value, 1);
  EXPECT_EQ(row.difference->interval->low, 1);
  EXPECT_EQ(row.difference->interval->high, 1);
  EXPECT_LT(row.models[0].interval->low, row.models[0].interval->high);
}

TEST(Results, LossesAreMeansOverTokens) {
  const std::vector<Row> rows = loss_rows("t", {{{8, 4}, {1, 1}}, {{4, 4}, {1, 1}}});
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].metric, "loss");
  EXPECT_DOUBLE_EQ(rows[0].models[0].value, 9.0 / 5);
  EXPECT_DOUBLE_EQ(rows[0].models[1].value, 1);
  EXPECT_DOUBLE_EQ(rows[0].difference->value, -0.8);
  EXPECT_DOUBLE_EQ(rows[1].models[0].value, std::exp(9.0 / 5));
  EXPECT_DOUBLE_EQ(rows[1].difference->value, std::exp(1.0) - std::exp(9.0 / 5));
  EXPECT_EQ(rows[0].models[0].interval->high, 2) << "resampling the first text only";
  EXPECT_EQ(rows[0].models[0].interval->low, 1);
}

TEST(Results, TableHasTwoLinesPerRow) {
  const std::vector<double> scores = {1, 0, 1, 1};
  const std::string one = table({row_of("quiz", {"acc", true, {scores}})}, {"model"});
  EXPECT_EQ(one,
            "task  metric  items  model\n"
            "quiz  acc         4  0.7500 \u00b1 0.2500\n"
            "                     [0.3006, 0.9544]\n");
  const std::string two = table(
      {row_of("quiz", {"acc", true, {{0, 0, 0, 0}, {0, 0, 0, 0}}}), row_of("quiz", {"rougeL", false, {{0.5}, {1}}})},
      {"base", "tuned"});
  EXPECT_EQ(two,
            "task  metric  items  base              tuned             tuned - base\n"
            "quiz  acc         4  0.0000 \u00b1 0.0000   0.0000 \u00b1 0.0000   +0.0000 \u00b1 0.0000\n"
            "                     [0.0000, 0.4899]  [0.0000, 0.4899]  [+0.0000, +0.0000]\n"
            "      rougeL      1  0.5000            1.0000            +0.5000\n");
}

}  // namespace
}  // namespace ingot::eval
