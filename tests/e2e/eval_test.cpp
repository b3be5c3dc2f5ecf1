// ingot eval through the executable, against transformers, peft and rouge-score (tests/golden/eval, made by
// tools/reference/make_eval_golden.py), and its errors.
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "tensor/tolerance.h"
#include "tests/e2e/program.h"
#include "tests/locations.h"

namespace ingot::e2e {
namespace {

namespace fs = std::filesystem;

// The bound of score_test.cpp, here for a difference of two models with about the same loss.
const double bound = tolerance(DType::f32, 16 * 96);

const fs::path golden = fs::path(test_data) / "eval";

// The model that made the golden files.
std::string golden_model(const Program& program) {
  const fs::path folder = program / "golden-model";
  fs::create_directories(folder);
  for (const char* name : {"config.json", "model.safetensors"})
    fs::copy_file(fs::path(llama("a")) / name, folder / name);
  for (const char* name : {"tokenizer.json", "tokenizer_config.json"}) fs::copy_file(golden / name, folder / name);
  return folder.string();
}

std::vector<Json> lines_of(const fs::path& path) {
  std::vector<Json> lines;
  std::istringstream text(read(path));
  for (std::string line; std::getline(text, line);) lines.push_back(Json::parse(line));
  return lines;
}

// The mean of one metric over golden items that have it.
double mean_of(const Json& items, const std::string& model, const std::string& metric) {
  double sum = 0, number = 0;
  for (const Json& item : items) {
    if (!item[model].contains(metric)) continue;
    sum += item[model][metric].get<double>();
    ++number;
  }
  return sum / number;
}

// Held-out loss, choices and answers are computed as asked for.
TEST(EvalTasks, Int8ActivationsChangeEveryResultALittle) {
  const Program program;
  const std::string model = golden_model(program), text = (program / "text.txt").string();
  write(text, "The quick brown fox jumps over the lazy dog, and the dog does not mind.\n");
  const auto evaluated = [&](const char* compute, const std::string& items) {
    return program.report({"eval", "--model", model, "--weights", "int8", "--compute", compute, "--data", text,
                           "--task", (golden / "choices.jsonl").string(), "--items", items});
  };
  const std::string exact_items = (program / "exact.jsonl").string(), items = (program / "int8.jsonl").string();
  const Json exact = evaluated("auto", exact_items), rounded = evaluated("int8", items);
  const auto loss = [](const Json& report) { return report.at("loss").get<double>(); };
  EXPECT_NE(loss(rounded), loss(exact));
  EXPECT_NEAR(loss(rounded), loss(exact), 0.01 * loss(exact));
  EXPECT_NE(lines_of(items)[0]["models"][0]["logprobs"], lines_of(exact_items)[0]["models"][0]["logprobs"]);
}

TEST(EvalTasks, ChoicesAndAnswersAgreeWithTransformers) {
  const Program program;
  const std::string model = golden_model(program);
  const Json expected = Json::parse(read(golden / "golden.json"));
  const std::string items = (program / "items.jsonl").string();
  const Json report = program.report({"eval", "--model", model, "--adapter", llama("a") + "/lora", "--dtype", "fp32",
                                      "--task", (golden / "choices.jsonl").string(), "--task",
                                      (golden / "questions.jsonl").string(), "--items", items});
  const std::vector<Json> lines = lines_of(items);
  ASSERT_EQ(lines.size(), expected["choices"].size() + expected["answers"].size());
  size_t at = 0;
  for (const Json& choice : expected["choices"]) {
    const Json& line = lines[at++];
    EXPECT_EQ(line["task"], "choices");
    for (size_t m = 0; m < 2; ++m) {
      const Json& found = line["models"][m];
      const Json& wanted = choice[found["name"].get<std::string>()];
      EXPECT_EQ(found["tokens"], wanted["tokens"]) << line;
      ASSERT_EQ(found["logprobs"].size(), wanted["logprobs"].size());
      for (size_t c = 0; c < wanted["logprobs"].size(); ++c) {
        const double logprob = wanted["logprobs"][c];
        EXPECT_NEAR(found["logprobs"][c].get<double>(), logprob, bound * std::abs(logprob)) << line;
      }
      for (const char* metric : {"acc", "acc_norm", "acc_bytes", "acc_tokens"}) {
        EXPECT_EQ(found[metric], wanted[metric]) << metric << " " << line;
      }
    }
  }
  for (const Json& answer : expected["answers"]) {
    const Json& line = lines[at++];
    EXPECT_EQ(line["task"], "questions");
    for (size_t m = 0; m < 2; ++m) {
      Json found = line["models"][m];
      const Json& wanted = answer[found["name"].get<std::string>()];
      found.erase("name");
      EXPECT_EQ(found["text"], wanted["text"]);
      if (wanted.contains("rougeL")) {
        EXPECT_DOUBLE_EQ(found["rougeL"].get<double>(), wanted["rougeL"].get<double>());
        found["rougeL"] = wanted["rougeL"];
      }
      EXPECT_EQ(found, wanted);
    }
  }

  EXPECT_EQ(report["truncated"], 1);
  int metrics = 0;
  for (const Json& row : report["results"]) {
    const Json& of = expected[row["task"] == "choices" ? "choices" : "answers"];
    const double base = mean_of(of, "base", row["metric"]), tuned = mean_of(of, "tuned", row["metric"]);
    EXPECT_NEAR(row["models"][0]["value"].get<double>(), base, 1e-12) << row;
    EXPECT_NEAR(row["models"][1]["value"].get<double>(), tuned, 1e-12) << row;
    EXPECT_NEAR(row["difference"]["value"].get<double>(), tuned - base, 1e-12) << row;
    EXPECT_LE(row["models"][0]["interval"][0].get<double>(), base);
    EXPECT_GE(row["models"][0]["interval"][1].get<double>(), base);
    ++metrics;
  }
  EXPECT_EQ(metrics, 8);
}

TEST(EvalTasks, EvaluatingOneModelAloneGivesTheSame) {
  const Program program;
  const std::string model = golden_model(program);
  const std::string task = (golden / "choices.jsonl").string();
  const Json both =
      program.report({"eval", "--model", model, "--adapter", llama("a") + "/lora", "--dtype", "fp32", "--task", task});
  const Json base = program.report({"eval", "--model", model, "--dtype", "fp32", "--task", task});
  ASSERT_EQ(base["results"].size(), both["results"].size());
  for (size_t r = 0; r < base["results"].size(); ++r) {
    ASSERT_EQ(base["results"][r]["models"].size(), 1U);
    EXPECT_FALSE(base["results"][r].contains("difference"));
    Json model_of_both = both["results"][r]["models"][0];
    EXPECT_EQ(model_of_both["name"], "base");
    model_of_both["name"] = "model";
    EXPECT_EQ(base["results"][r]["models"][0], model_of_both);
  }
}

TEST(EvalData, AnAdapterIsComparedWithItsBase) {
  const Program program;
  const std::string model = make_text_model(program, false);
  const std::string data = (program / "held.jsonl").string();
  write(data, "{\"text\": \"We the people\"}\n{\"text\": \"of these states\"}\n{\"text\": \"and so on\"}\n");
  const std::vector<std::string> arguments = {"eval", "--model", model, "--data", data, "--sequence-length",
                                              "16",   "--dtype", "fp32"};
  std::vector<std::string> tuned = arguments;
  tuned.insert(tuned.end(), {"--adapter", llama("a") + "/lora"});
  const Json alone = program.report(arguments), both = program.report(tuned);
  ASSERT_EQ(both["results"].size(), 2U);
  const Json& loss = both["results"][0];
  EXPECT_EQ(loss["metric"], "loss");
  EXPECT_EQ(loss["items"], 3);
  EXPECT_EQ(loss["models"][0]["value"], alone["loss"]);
  EXPECT_EQ(loss["models"][1]["value"], both["loss"]);
  EXPECT_NE(both["loss"], alone["loss"]);
  EXPECT_EQ(both["results"][1]["models"][1]["value"], both["perplexity"]);
  EXPECT_EQ(both["tokens"], alone["tokens"]);
  const double difference = both["loss"].get<double>() - alone["loss"].get<double>();
  EXPECT_NEAR(loss["difference"]["value"].get<double>(), difference, 1e-9);

  // The result equals that of two separate models.
  const fs::path other = program / "other";
  fs::copy(model, other);
  std::vector<std::string> named = arguments;
  named.insert(named.end(), {"--base", other.string()});
  const Json same = program.report(named);
  EXPECT_EQ(same["results"][0]["difference"]["value"], 0);
  EXPECT_EQ(same["loss"], alone["loss"]);

  const Result shown = program.run(tuned);
  EXPECT_EQ(shown.code, 0);
  EXPECT_NE(shown.output.find("task  metric      items  base"), std::string::npos) << shown.output;
  EXPECT_NE(shown.output.find("tuned - base"), std::string::npos) << shown.output;
}

TEST(EvalTasks, ErrorsNameTheFault) {
  const Program program;
  const std::string model = make_text_model(program, false);
  const std::string task = (program / "task.jsonl").string();
  write(task, "{\"context\": \"a\", \"choices\": [\"b\", \"c\"], \"answer\": 1}\n{\"contxt\": \"a\"}\n");
  program.refuses({"eval", "--model", model}, 2, "nothing to measure");
  program.refuses({"eval", "--model", model, "--task", task}, 3, "task.jsonl line 2: the line has neither");
  program.refuses({"eval", "--model", model, "--task", (program / "gone.jsonl").string()}, 3, "gone.jsonl");
  program.refuses({"eval", "--model", llama("a"), "--data", task, "--items", "x"}, 2,
                  "--items writes the results of --task");
  write(task, R"({"messages": [{"role": "user", "content": "q"}], "json": true})");
  program.refuses({"eval", "--model", model, "--task", task}, 2, "line 1: the model");
  program.refuses({"eval", "--model", llama("a"), "--task", task}, 3, "has no tokenizer");
  write(task, "{\"prompt\": \"" + std::string(200, 'x') + "\", \"json\": true, \"max_tokens\": 57}");
  program.refuses({"eval", "--model", model, "--task", task}, 2,
                  "line 1: a prompt of 200 tokens and an answer of up to 57 exceed the model's context of 256");
  write(task, "{\"context\": \"a\", \"choices\": [\"b\", \"" + std::string(300, 'x') + "\"], \"answer\": 0}");
  program.refuses({"eval", "--model", model, "--task", task}, 4, "line 1: a choice has 301 tokens");
  write(task, "{\"prompt\": \"a\", \"json\": true, \"max_tokens\": 4}");
  program.refuses({"eval", "--model", model, "--base", model, "--adapter", llama("a") + "/lora", "--task", task}, 2,
                  "--base and --adapter are mutually exclusive");
  program.refuses({"eval", "--model", model, "--task", task, "--items", (program / "no/i.jsonl").string()}, 5,
                  "i.jsonl");
  const Program other;
  const std::string different = golden_model(other);
  write(program / "d.jsonl", "{\"text\": \"the people of the state\"}\n");
  program.refuses({"eval", "--model", model, "--base", different, "--data", (program / "d.jsonl").string()}, 2,
                  "cannot be compared");
}

// A bad line stops the run with one message that names it, or is counted.
TEST(BadLines, StopOrAreCounted) {
  const Program program;
  const std::string model = make_text_model(program, false);
  std::string lines;
  for (int i = 0; i < 20; ++i) lines += "{\"text\": \"We the people of these states\"}\n";
  const std::string data = (program / "train.jsonl").string();
  write(data, lines + "{\"text\": 7}\n" + lines + "nonsense\n");
  const std::string recipe = (program / "r.yaml").string();
  write(recipe, "name: r\nmodel: " + model + "\nrun_dir: " + (program / "runs").string() +
                    "\nadapter: {rank: 2}\nsteps: 1\nprecision: fp32\nbatch: {global: 2, micro: 1}\n"
                    "data: {train: " +
                    data + ", sequence_length: 32}\n");
  program.refuses({"finetune", recipe}, 3, "train.jsonl line 21: \"text\" must be a string");
  const Result result = program.run({"finetune", recipe, "data.on_error=skip"});
  ASSERT_EQ(result.code, 0) << result.error;
  EXPECT_NE(result.output.find("malformed lines      2 skipped; the first: " + data + " line 21"), std::string::npos)
      << result.output;
  const Json start = lines_of(program / "runs/r/events.jsonl").at(0);
  EXPECT_EQ(start["type"], "start");
  EXPECT_EQ(start["data"]["train"]["documents"], 40);
  EXPECT_EQ(start["data"]["train"]["bad_lines"], 2);
  EXPECT_NE(start["data"]["train"]["first_bad_line"].get<std::string>().find("line 21"), std::string::npos);
  EXPECT_EQ(start["data"]["eval"]["documents"], 0);
}

}  // namespace
}  // namespace ingot::e2e
