// Files of an earlier version (tests/golden/upgrade; its README says how they were made): runs resume and replay, and
// models and adapters are served, as that version did. Files of later versions are refused with a message.
#include <gtest/gtest.h>

#include <cmath>
#include <csignal>
#include <map>

#include "tensor/tolerance.h"
#include "tests/e2e/program.h"
#include "tests/e2e/server.h"
#include "tests/locations.h"

namespace ingot::e2e {
namespace {

namespace fs = std::filesystem;

// The number of terms in the longest chain of sums in a step: the vocabulary, seven gemms per layer.
constexpr int64_t chain_length = 259 * 7 * 2;

// The parameter is the commit of the version, a folder of tests/golden/upgrade.
class Upgrade : public testing::TestWithParam<const char*> {
 protected:
  Upgrade() { fs::copy(fs::path(test_data) / "upgrade" / GetParam(), old_, fs::copy_options::recursive); }

  std::string path(const std::string& name) const { return (old_ / name).string(); }
  Json said(const std::string& name) const { return Json::parse(read(old_ / "said" / (name + ".json"))); }

  // A run's recipe with absolute paths.
  std::vector<std::string> with_paths(std::vector<std::string> words, const std::string& name) const {
    const bool lora = name == "lora";
    words.push_back("model=" + path(lora ? "base" : "shape"));
    words.push_back("data.train=" + path(lora ? "chat.jsonl" : "train.jsonl"));
    if (name == "pretrain") words.push_back("data.eval=" + path("eval.jsonl"));
    return words;
  }
  std::vector<std::string> resume(const std::string& name, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words = with_paths({name == "lora" ? "finetune" : "pretrain", path(name + ".yaml"),
                                                 "--resume", "--quiet", "run_dir=" + path("runs")},
                                                name);
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  // Events of one type after a step, by step.
  static std::map<int64_t, Json> later(const std::vector<Json>& events, int64_t step) {
    std::map<int64_t, Json> found;
    for (const Json& event : events) {
      if (event.at("step") > step) found[event["step"]] = event;
    }
    return found;
  }
  // After resuming from step `from`, the run's events equal those of the earlier version to rounding.
  void continues_alike(const std::string& name, int64_t from, const std::vector<std::string>& more = {}) const {
    const Result result = program_.run(resume(name, more));
    ASSERT_EQ(result.code, 0) << result.error;
    fs::create_directories(old_ / "expected");
    fs::copy_file(old_ / "continued" / (name + ".jsonl"), old_ / "expected" / "events.jsonl",
                  fs::copy_options::overwrite_existing);
    for (const char* type : {"step", "eval"}) {
      const auto then = later(events_of(old_ / "expected", type), from),
                 now = later(events_of(old_ / "runs" / name, type), from);
      EXPECT_EQ(now.size(), then.size());
      for (const auto& [step, event] : then) {
        ASSERT_TRUE(now.contains(step)) << type << " " << step;
        const double allowed = tolerance(DType::f32, (step - from) * chain_length);
        for (const char* key : {"loss", "grad_norm"}) {
          if (!event.contains(key)) continue;
          const double before = event[key], after = now.at(step)[key];
          EXPECT_NEAR(after, before, allowed * std::abs(before)) << type << " " << step << " " << key;
        }
        // The tokens of steps are not compared: 173009b counted padding, which later versions do not.
        const char* equal = event.contains("lr") ? "lr" : "tokens";
        EXPECT_EQ(now.at(step)[equal], event[equal]) << type << " " << step;
      }
    }
  }

  Program program_;
  fs::path old_ = program_ / "old";
};

TEST_P(Upgrade, AStoppedRunResumes) {
  const std::vector<Json> steps = events_of(old_ / "runs" / "pretrain", "step");
  continues_alike("pretrain", steps.back()["step"]);
  EXPECT_EQ(events_of(old_ / "runs" / "pretrain", "start").size(), 2U);
  EXPECT_TRUE(fs::exists(old_ / "runs" / "pretrain" / "model" / "model.safetensors"));
}

TEST_P(Upgrade, AStoppedRunResumesOnDataPackedByTheEarlierVersion) {
  const std::vector<Json> steps = events_of(old_ / "runs" / "pretrain", "step");
  continues_alike("pretrain", steps.back()["step"], {"data.train=" + path("packed"), "data.format=auto"});
}

TEST_P(Upgrade, ARunOfTwoRanksResumesWithTwoAndWithOne) {
  fs::copy(old_ / "runs" / "ranks", old_ / "again", fs::copy_options::recursive);
  continues_alike("ranks", 6, {"steps=12"});
  fs::remove_all(old_ / "runs" / "ranks");
  fs::rename(old_ / "again", old_ / "runs" / "ranks");
  continues_alike("ranks", 6, {"steps=12", "parallel.dp=1", "parallel.zero=0", "threads=1"});
}

TEST_P(Upgrade, AFinishedFinetuningContinues) {
  continues_alike("lora", 60, {"steps=72"});
  EXPECT_TRUE(fs::exists(old_ / "runs" / "lora" / "adapter" / "adapter_model.safetensors"));
}

// From the first step, so that initial weights and sample order are compared, too. At this learning rate each update
// amplifies rounding differences, so only a few steps are compared.
TEST_P(Upgrade, RunsAreReproduced) {
  for (const char* name : {"pretrain", "ranks", "lora"}) {
    // Kernels have changed since the earlier version, so a replay that demands equal bits ends with an error.
    const Json replayed = json_of(program_.run(
        with_paths({"replay", path("runs/" + std::string(name)), "--step", "5", "threads=1", "--json"}, name)));
    EXPECT_EQ(replayed["from"], 0) << name;
    EXPECT_EQ(replayed["steps"].size(), 5U) << name;
    for (const Json& step : replayed["steps"]) {
      const double allowed = tolerance(DType::f32, step["step"].get<int64_t>() * chain_length);
      for (const std::string key : {"loss", "grad_norm"}) {
        const double before = step["recorded_" + key];
        EXPECT_NEAR(step[key].get<double>(), before, allowed * before) << name << " " << step;
      }
    }
  }
}

TEST_P(Upgrade, ReportsAreUnchanged) {
  for (const char* name : {"pretrain", "ranks", "lora"}) {
    const Json then = said("report-" + std::string(name))["runs"][0];
    const Json now = program_.report({"report", path("runs/" + std::string(name))})["runs"][0];
    for (const auto& [key, value] : then.items()) {
      if (key != "folder") EXPECT_EQ(now[key], value) << name << " " << key;
    }
  }
}

TEST_P(Upgrade, InspectionOfModelsIsUnchanged) {
  for (const char* name : {"base", "merged"}) {
    const Json then = said("inspect-" + std::string(name));
    const Json now = program_.report({"model", "inspect", path(name)});
    for (const auto& [key, value] : then.items()) {
      if (key != "path") EXPECT_EQ(now[key], value) << name << " " << key;
    }
  }
}

TEST_P(Upgrade, ModelsAndAdaptersGenerateTheSameText) {
  const std::string adapter = path("runs/lora/adapter");
  const auto expect = [&](const std::string& name, const std::vector<std::string>& words) {
    std::vector<std::string> all = {"generate", "--dtype", "fp32", "--threads", "1", "--max-tokens", "24"};
    all.insert(all.end(), words.begin(), words.end());
    const Json then = said(name), now = program_.report(all);
    for (const char* key : {"text", "ids", "finish_reason", "usage"}) EXPECT_EQ(now[key], then[key]) << name;
  };
  const std::string question = "What does the fox say?";
  expect("base", {"--model", path("base"), "--prompt", "The horse"});
  expect("adapter", {"--model", path("base"), "--adapter", adapter, "--chat", "--prompt", question});
  expect("merged", {"--model", path("merged"), "--chat", "--prompt", question});

  const Result merged = program_.run({"model", "merge", path("base"), path("again"), "--adapter", adapter});
  ASSERT_EQ(merged.code, 0) << merged.error;
  expect("merged", {"--model", path("again"), "--chat", "--prompt", question});
}

TEST_P(Upgrade, ModelsAndAdaptersAreServedTheSame) {
  fs::create_directories(old_ / "adapters");
  fs::copy(old_ / "runs" / "lora" / "adapter", old_ / "adapters" / "tuned", fs::copy_options::recursive);
  Process process({"serve", "--model", path("base"), "--dtype", "fp32", "--name", "plain", "--port", "0", "--threads",
                   "1", "--adapters", path("adapters")});
  const int port = port_of(process);
  const auto answer = [&](const std::string& route, Json body) {
    body.update({{"temperature", 0}, {"max_tokens", 24}});
    const server::Answer got = ask(port, "POST", "/v1/" + route, body.dump());
    EXPECT_EQ(got.status, 200) << got.body;
    return Json::parse(got.body)["choices"][0];
  };
  EXPECT_EQ(answer("completions", {{"model", "plain"}, {"prompt", "The horse"}})["text"], said("base")["text"]);
  const Json question = {{"role", "user"}, {"content", "What does the fox say?"}};
  EXPECT_EQ(answer("chat/completions", {{"model", "tuned"}, {"messages", {question}}})["message"]["content"],
            said("adapter")["text"]);
  process.kill(SIGTERM);
  EXPECT_EQ(process.wait(std::chrono::minutes(5)), 130) << process.result().error;
}

// A model registered before the registry format had a version.
TEST_P(Upgrade, ARegisteredModelIsFound) {
  fs::create_directories(program_ / "home/models/mine");
  write(program_ / "home/models/mine/origin.json",
        Json{{"files", Json::array()}, {"origin", path("base")}, {"path", path("base")}}.dump(2));
  const Json report = program_.report(
      {"generate", "--model", "mine", "--dtype", "fp32", "--prompt", "The horse", "--max-tokens", "24"});
  EXPECT_EQ(report["text"], said("base")["text"]);
}

class NewerVersions : public Upgrade {
 protected:
  // Replaces a file by one of a newer format version that contains only its format and version.
  void replace(const std::string& name, const std::string& text) const { write(old_ / name, text); }
  void refuses(const std::vector<std::string>& words, const std::string& file) const {
    const Result result = program_.run(words);
    EXPECT_EQ(result.code, 3) << result.error;
    EXPECT_NE(result.error.find(file + ": is a "), std::string::npos) << result.error;
    EXPECT_NE(result.error.find("of format version 2; this version of Ingot reads format versions up to 1"),
              std::string::npos)
        << result.error;
  }
};

TEST_P(NewerVersions, RecipeIsRefused) {
  replace("pretrain.yaml", "name: run\nversion: 2\nstages: [1, 2]\n");
  refuses(resume("pretrain"), path("pretrain.yaml") + ":2");
}

TEST_P(NewerVersions, CheckpointIsRefused) {
  const std::string step = events_of(old_ / "runs" / "pretrain", "step").back()["step"].dump();
  const std::string name = "runs/pretrain/checkpoints/step-" + step + "/manifest.json";
  const std::string events = read(old_ / "runs/pretrain/events.jsonl");
  replace(name, R"({"format": "ingot-checkpoint", "version": 2, "chunks": []})");
  refuses(resume("pretrain"), path(name));
  EXPECT_EQ(read(old_ / "runs/pretrain/events.jsonl"), events);
}

TEST_P(NewerVersions, EventsAreRefused) {
  const std::string name = "runs/pretrain/events.jsonl", all = read(old_ / name);
  const std::string start = R"({"type":"start",)";
  ASSERT_TRUE(all.starts_with(start));
  const std::string newer = start + "\"version\":2," + all.substr(start.size());
  replace(name, newer);
  const std::string recipe = read(old_ / "runs/pretrain/recipe.yaml");
  refuses({"report", path("runs/pretrain")}, path(name));
  refuses(with_paths({"replay", path("runs/pretrain")}, "pretrain"), path(name));
  refuses(resume("pretrain"), path(name));
  EXPECT_EQ(read(old_ / name), newer);
  EXPECT_EQ(read(old_ / "runs/pretrain/recipe.yaml"), recipe);
  EXPECT_FALSE(fs::exists(old_ / "runs/pretrain/report.html"));
}

TEST_P(NewerVersions, PackedDataIsRefused) {
  replace("packed/packing.json", R"({"version": 2})");
  refuses(resume("pretrain", {"data.train=" + path("packed"), "data.format=auto"}), path("packed/packing.json"));
}

TEST_P(NewerVersions, RegisteredModelIsRefused) {
  fs::create_directories(program_ / "home/models/mine");
  const fs::path record = program_ / "home/models/mine/origin.json";
  write(record, R"({"version": 2, "source": {}})");
  refuses({"model", "list"}, record.string());
  refuses({"generate", "--model", "mine", "--prompt", "a"}, record.string());
}

TEST_P(NewerVersions, TokenizationProgressIsRefused) {
  replace("tokens.progress", R"({"version": 2})");
  refuses({"data", "tokenize", path("train.jsonl"), "--model", path("shape"), "--out", path("tokens"), "--quiet"},
          path("tokens.progress"));
}

INSTANTIATE_TEST_SUITE_P(Commit, Upgrade, testing::Values("173009b"), [](const auto& i) { return i.param; });
INSTANTIATE_TEST_SUITE_P(Commit, NewerVersions, testing::Values("173009b"), [](const auto& i) { return i.param; });

}  // namespace
}  // namespace ingot::e2e
