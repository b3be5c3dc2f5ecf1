// Long runs: the micro-batch that a run finds by itself.
#include <gtest/gtest.h>

#include <sstream>

#include "tests/e2e/program.h"

namespace ingot::e2e {
namespace {

namespace fs = std::filesystem;

class Pretrain : public testing::Test {
 protected:
  Pretrain() {
    std::string text;
    for (int i = 0; i < 60; ++i) {
      text += R"({"text": "Document )" + std::to_string(i) + R"( speaks of the number )" + std::to_string(i * i) +
              R"( and of nothing else at all."})" + "\n";
    }
    write(program_ / "train.jsonl", text);
    write(program_ / "recipe.yaml",
          "name: run\nmodel: " + std::string(INGOT_SOURCE) +
              "/recipes/models/tiny\ninit: random\ndata: {train: " + (program_ / "train.jsonl").string() +
              ", sequence_length: 64}\noptimizer: {lr: 1e-3}\nsteps: 6\n"
              "batch: {global: 6}\nthreads: 1\n");
  }

  std::vector<std::string> command(const std::string& name, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words = {"pretrain", (program_ / "recipe.yaml").string(), "name=" + name,
                                      "run_dir=" + (program_ / "runs").string()};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  fs::path run(const std::string& name) const { return program_ / "runs" / name; }
  std::vector<Json> events(const std::string& name, const std::string& type) const {
    std::vector<Json> found;
    std::istringstream lines(read(run(name) / "events.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      Json event = Json::parse(line);
      if (event["type"] == type) found.push_back(std::move(event));
    }
    return found;
  }
  // Loss and gradient norm, step by step.
  std::vector<std::pair<double, double>> curve(const std::string& name) const {
    std::vector<std::pair<double, double>> steps;
    for (const Json& e : events(name, "step")) steps.emplace_back(e["loss"], e["grad_norm"]);
    return steps;
  }
  void trains(const std::string& name, const std::vector<std::string>& more = {}) const {
    const Result result = program_.run(command(name, more));
    ASSERT_EQ(result.code, 0) << result.error;
  }

  Program program_;
};

TEST_F(Pretrain, TheMicroBatchIsFoundToldAndChangesNothing) {
  for (const char* determinism : {"fast", "bitwise"}) {
    const std::string d = determinism, setting = "determinism=" + d;
    ASSERT_NO_FATAL_FAILURE(trains(d + "-auto", {setting}));
    ASSERT_NO_FATAL_FAILURE(trains(d + "-one", {setting, "batch.micro=1"}));
    EXPECT_EQ(curve(d + "-auto"), curve(d + "-one"));
    EXPECT_EQ(curve(d + "-auto").size(), 6U);
    const Json start = events(d + "-auto", "start").at(0), one = events(d + "-one", "start").at(0);
    EXPECT_EQ(start["batch_micro"], 6);
    EXPECT_EQ(start["batch_micro_reason"], "the whole batch");
    EXPECT_EQ(one["batch_micro"], 1);
    EXPECT_EQ(one["batch_micro_reason"], "as the recipe says");
    EXPECT_NE(read(run(d + "-auto") / "recipe.yaml").find("micro: 6"), std::string::npos);
  }
}

}  // namespace
}  // namespace ingot::e2e
