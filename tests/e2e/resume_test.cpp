// Runs that are killed, stopped or out of disk space, and then resumed, compared with an uninterrupted run.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <thread>

#include "base/cpu_list.h"
#include "base/file.h"
#include "base/function_ref.h"
#include "base/topology.h"
#include "tests/e2e/process.h"
#include "tests/locations.h"

namespace ingot::e2e {
namespace {

namespace fs = std::filesystem;

class Resume : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / ("resume-" + std::to_string(getpid()));
    fs::create_directories(folder_);
    std::ofstream text(folder_ / "train.jsonl");
    for (int i = 0; i < 40; ++i) {
      text << R"({"text": "Document )" << i << " speaks of the number " << i * i << R"( and of nothing else at all."})"
           << "\n";
    }
    text.close();
    fs::copy_file(folder_ / "train.jsonl", folder_ / "eval.jsonl");
    std::ofstream recipe(folder_ / "recipe.yaml");
    recipe << "name: run\nmodel: " << source_root << "/recipes/models/tiny\n"
           << "data: {train: " << (folder_ / "train.jsonl").string() << ", eval: " << (folder_ / "eval.jsonl").string()
           << ", sequence_length: 64}\n"
           << "optimizer: {lr: 1e-3, weight_decay: 0.1}\nsteps: 24\nbatch: {global: 2}\ndevice: cpu\nthreads: 1\n"
           << "eval: {every: 8}\ncheckpoint: {every: 3, keep: 2}\n";
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::vector<std::string> command(const std::string& name, std::vector<std::string> more = {}) const {
    std::vector<std::string> words = {"pretrain", (folder_ / "recipe.yaml").string(),
                                      "run_dir=" + (folder_ / name).string(), "init=random"};
    if (std::string(GetParam()) == "bitwise") {
      words.push_back("determinism=bitwise");
    } else {
      words.push_back(fmt::format("precision={}", GetParam()));
    }
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  fs::path run(const std::string& name) const { return folder_ / name / "run"; }

  // Loss and gradient norm by step, and the evaluations.
  std::vector<std::string> curve(const std::string& name) const {
    std::vector<std::string> lines;
    std::ifstream events(run(name) / "events.jsonl");
    for (std::string line; std::getline(events, line);) {
      const nlohmann::json e = nlohmann::json::parse(line);
      if (e.at("type") == "step") {
        lines.push_back(e.at("step").dump() + " " + e.at("loss").dump() + " " + e.at("grad_norm").dump());
      }
      if (e.at("type") == "eval") lines.push_back("eval " + e.at("step").dump() + " " + e.at("loss").dump());
    }
    return lines;
  }
  std::string weights(const std::string& name) const {
    const MappedFile file(run(name) / "model" / "model.safetensors");
    return sha256_hex(file.bytes());
  }

  // The number of complete checkpoints.
  int64_t checkpoints(const std::string& name) const {
    const fs::path folder = run(name) / "checkpoints";
    if (!fs::exists(folder)) return 0;
    return std::ranges::count_if(fs::directory_iterator(folder),
                                 [](const auto& entry) { return entry.path().extension() != ".partial"; });
  }

  // Starts the run again and again until it ends by itself, each time with the settings that `more` returns. The first
  // six starts are killed within `longest_ms`: for runs of this size anywhere from reading the recipe to the last
  // checkpoint.
  void run_and_kill(const std::string& name, unsigned longest_ms,
                    FunctionRef<std::vector<std::string>(std::mt19937& random)> more) const {
    const unsigned seed = std::random_device{}();
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    int kills = 0;
    for (int attempt = 0; attempt < 60; ++attempt) {
      std::vector<std::string> words = command(name, more(random));
      if (attempt % 2 == 0) {
        words.emplace_back("--resume=auto");
      } else if (fs::exists(run(name) / "events.jsonl")) {
        words.emplace_back(checkpoints(name) > 0 ? "--resume" : "--resume=fresh");
      }
      Process process(words);
      const auto life = std::chrono::milliseconds(kills < 6 ? 100 + random() % (longest_ms - 100) : 600'000);
      const std::optional<int> code = process.wait(life);
      if (code) {
        ASSERT_EQ(*code, 0) << process.result().error;
        return;
      }
      process.kill(SIGKILL);
      ++kills;
    }
  }

  fs::path folder_;
};

TEST_P(Resume, KilledAtRandomPointsItEqualsAnUninterruptedRun) {
  const Result whole = ingot(command("whole"));
  ASSERT_EQ(whole.code, 0) << whole.error;
  ASSERT_NO_FATAL_FAILURE(run_and_kill("killed", 1600, [](std::mt19937&) { return std::vector<std::string>(); }));
  EXPECT_EQ(curve("killed"), curve("whole"));
  EXPECT_EQ(weights("killed"), weights("whole"));
}

TEST_P(Resume, ASignalWritesACheckpointAndReportsIt) {
  Process process(command("stopped", {"steps=2000", "checkpoint.every=0", "checkpoint.minutes=0"}));
  while (!fs::exists(run("stopped") / "events.jsonl") || curve("stopped").size() < 4) {
    ASSERT_FALSE(process.wait(std::chrono::milliseconds(20))) << process.result().error;
  }
  process.kill(SIGTERM);
  ASSERT_EQ(process.wait(std::chrono::minutes(5)), 130) << process.result().error;
  EXPECT_NE(process.result().error.find("--resume"), std::string::npos);
  EXPECT_EQ(checkpoints("stopped"), 1);
}

// A number in the recipe at first, auto when it is continued.
TEST_P(Resume, KeepsTheMicroBatchWhereBitsMayDependOnIt) {
  ASSERT_EQ(ingot(command("micro", {"steps=3", "batch.micro=1"})).code, 0);
  ASSERT_EQ(ingot(command("micro", {"steps=4", "--resume"})).code, 0);
  nlohmann::json start;
  std::ifstream events(run("micro") / "events.jsonl");
  for (std::string line; std::getline(events, line);) {
    nlohmann::json event = nlohmann::json::parse(line);
    if (event.at("type") == "start") start = std::move(event);
  }
  const bool bitwise = GetParam() == std::string("bitwise");
  EXPECT_EQ(start.at("batch_micro"), bitwise ? 2 : 1) << start.at("batch_micro_reason");
}

INSTANTIATE_TEST_SUITE_P(Precision, Resume, testing::Values("fp32", "bf16", "bitwise"),
                         [](const auto& i) { return i.param; });

class Elastic : public Resume {};
INSTANTIATE_TEST_SUITE_P(Precision, Elastic, testing::Values("bitwise"), [](const auto& i) { return i.param; });

// Each start has another number of ranks, with other shards of the state and other micro-batches.
TEST_P(Elastic, KilledAndResumedByOtherRanksItEqualsOneRank) {
  const std::vector<std::string> batch = {"batch.global=6", "optimizer.clip_grad_norm=0.5"};
  const Result whole = ingot(command("whole", batch));
  ASSERT_EQ(whole.code, 0) << whole.error;
  std::string layouts;
  ASSERT_NO_FATAL_FAILURE(run_and_kill("killed", 2100, [&](std::mt19937& random) {
    const auto ranks = 1 + random() % 4;
    const auto stages = random() % 2 == 0 ? 1 : 2;
    static constexpr const char* schedules[] = {"gpipe", "1f1b", "interleaved", "zb_h1", "zb_v"};
    std::vector<std::string> more = {fmt::format("parallel.dp={}", ranks),
                                     fmt::format("parallel.pp={}", stages),
                                     fmt::format("parallel.schedule={}", schedules[random() % 5]),
                                     fmt::format("parallel.zero={}", random() % (stages == 1 ? 4 : 2)),
                                     fmt::format("batch.micro={}", 1 + random() % 3),
                                     fmt::format("threads={}", ranks * static_cast<unsigned>(stages))};
    layouts += fmt::format("{}\n", fmt::join(more, " "));
    more.insert(more.end(), batch.begin(), batch.end());
    return more;
  }));
  EXPECT_EQ(curve("killed"), curve("whole")) << layouts;
  EXPECT_EQ(weights("killed"), weights("whole")) << layouts;
}

// An optimizer that needs whole matrices, with 8-bit states.
TEST_P(Elastic, MuonIn8BitsResumesWithOtherRanks) {
  // Neither learning rates nor evaluations depend on the run's length.
  const std::vector<std::string> muon = {"optimizer.name=muon", "optimizer.state_dtype=int8", "schedule.name=constant",
                                         "eval.every=3"};
  const auto train = [&](const std::string& name, std::vector<std::string> more) {
    more.insert(more.end(), muon.begin(), muon.end());
    return ingot(command(name, more));
  };
  const Result whole = train("whole", {"steps=6"});
  ASSERT_EQ(whole.code, 0) << whole.error;
  ASSERT_EQ(train("part", {"steps=3"}).code, 0);
  const Result adamw = ingot(command("part", {"steps=6", "optimizer.state_dtype=int8", "--resume"}));
  EXPECT_EQ(adamw.code, 2);
  EXPECT_NE(adamw.error.find("optimizer.name was \"muon\" and is now \"adamw\""), std::string::npos) << adamw.error;
  const Result wide = ingot(command("part", {"steps=6", "optimizer.name=muon", "--resume"}));
  EXPECT_EQ(wide.code, 2);
  EXPECT_NE(wide.error.find("optimizer.state_dtype was \"int8\" and is now \"fp32\" or \"bf16\""), std::string::npos)
      << wide.error;
  const Result again = train("part", {"steps=6", "parallel.dp=2", "parallel.zero=2", "threads=2", "--resume"});
  ASSERT_EQ(again.code, 0) << again.error;
  EXPECT_EQ(curve("part"), curve("whole"));
  EXPECT_EQ(weights("part"), weights("whole"));
}

TEST_P(Elastic, ASignalStopsAllRanks) {
  Process process(
      command("stopped", {"steps=2000", "checkpoint.every=0", "parallel.dp=2", "parallel.zero=1", "threads=2"}));
  while (!fs::exists(run("stopped") / "events.jsonl") || curve("stopped").size() < 4) {
    ASSERT_FALSE(process.wait(std::chrono::milliseconds(20))) << process.result().error;
  }
  process.kill(SIGTERM);
  ASSERT_EQ(process.wait(std::chrono::minutes(5)), 130) << process.result().error;
  EXPECT_NE(process.result().error.find("--resume"), std::string::npos);
}

// For each thread of a process that is bound to one CPU, that CPU.
std::set<std::string> cpus_bound_to(pid_t process) {
  std::set<std::string> cpus;
  std::error_code gone;
  for (const auto& task : fs::directory_iterator(fmt::format("/proc/{}/task", process), gone)) {
    std::ifstream status(task.path() / "status");
    const std::string key = "Cpus_allowed_list:\t";
    for (std::string line; std::getline(status, line);) {
      const std::string list = line.starts_with(key) ? line.substr(key.size()) : "-";
      if (list.find_first_of(",-") == std::string::npos) cpus.insert(list);
    }
  }
  return cpus;
}

TEST_P(Elastic, ThreadsOfAllRanksAreBoundToTheCpusOfTheirAffinity) {
  const std::vector<int> usable = usable_cpus();
  ASSERT_FALSE(usable.empty());
  std::set<std::string> all;
  for (const int cpu : usable) all.insert(std::to_string(cpu));
  for (const size_t ranks : {size_t{1}, std::min<size_t>(usable.size(), 2)}) {
    if (usable.size() % ranks != 0) continue;  // equally many CPUs for each rank
    const std::string name = fmt::format("bound-{}", ranks);
    Process process(command(name, {"steps=2000", "threads=auto", "affinity=" + format_cpu_list(usable),
                                   fmt::format("parallel.dp={}", ranks)}));
    std::set<std::string> seen;
    while (seen != all || !fs::exists(run(name) / "events.jsonl") || curve(name).empty()) {
      ASSERT_FALSE(process.wait(std::chrono::milliseconds(5))) << process.result().error;
      seen.merge(cpus_bound_to(process.pid()));
    }
    process.kill(SIGTERM);
    ASSERT_TRUE(process.wait(std::chrono::minutes(5))) << process.result().error;
    const std::string recipe = read_file(run(name) / "recipe.yaml");
    EXPECT_NE(recipe.find(fmt::format("threads: {}", usable.size())), std::string::npos) << recipe;
  }
}

TEST_P(Elastic, ThreadsAreBoundToACoreEachByItself) {
  const std::vector<CpuPlace> places = cpu_places(usable_cpus());
  std::set<int> cores;
  for (const CpuPlace& place : places) cores.insert(place.core);
  const Result two = ingot(command("bound", {"steps=2", "threads=auto", "affinity=auto", "parallel.dp=2"}));
  if (cores.size() < 2) {
    EXPECT_NE(two.error.find("affinity: auto: 2 ranks cannot be bound to 1 cores"), std::string::npos) << two.error;
    return;
  }
  ASSERT_EQ(two.code, 0) << two.error;
  EXPECT_NE(two.error.find("affinity: auto: this rank has CPU"), std::string::npos) << two.error;
  const std::string recipe = read_file(run("bound") / "recipe.yaml");
  EXPECT_NE(recipe.find(fmt::format("threads: {}", cores.size())), std::string::npos) << recipe;
  ASSERT_EQ(ingot(command("bound", {"--resume", "steps=3", "threads=auto", "affinity=auto", "parallel.dp=2"})).code, 0);
}

TEST_P(Elastic, AFullDiskEndsAllRanksAndKeepsTheLastCheckpoint) {
  const std::vector<std::string> ranks = {"batch.global=6", "parallel.dp=2", "threads=2"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), ranks.begin(), ranks.end());
    return command("full", more);
  };
  ASSERT_EQ(ingot(with({"steps=3"})).code, 0);
  const std::string before = read_file(run("full") / "checkpoints" / "step-3" / "manifest.json");
  Process process(with({"--resume", "steps=6"}), 1 << 20);
  ASSERT_EQ(process.wait(std::chrono::minutes(5)), 4) << process.result().error;
  EXPECT_NE(process.result().error.find("ingot: rank "), std::string::npos) << process.result().error;
  EXPECT_FALSE(fs::exists(run("full") / "checkpoints" / "step-6.partial")) << "the partial checkpoint was not removed";
  EXPECT_EQ(read_file(run("full") / "checkpoints" / "step-3" / "manifest.json"), before);
  ASSERT_EQ(ingot(with({"--resume", "steps=6"})).code, 0);
}

TEST_P(Elastic, ADryRunReportsTheMemoryOfEachRank) {
  const Result result =
      ingot(command("dry", {"batch.global=6", "parallel.dp=2", "parallel.zero=3", "threads=2", "--dry-run"}));
  EXPECT_EQ(result.code, 0) << result.error;
  for (const char* words : {"rank 0\n", "rank 1\n", "optimizer state", "gathered weights", "zero: 3"}) {
    EXPECT_NE(result.output.find(words), std::string::npos) << result.output;
  }
}

TEST_P(Elastic, UnsupportedSettingsOfRanksAreRefused) {
  const auto expect = [&](std::vector<std::string> more, const std::string& words) {
    more.emplace_back("parallel.dp=3");
    const Result result = ingot(command("wrong", more));
    EXPECT_EQ(result.code, 2) << result.error;
    EXPECT_NE(result.error.find(words), std::string::npos) << "expected '" << words << "' in: " << result.error;
  };
  expect({"threads=2"}, "threads: 2 is less than the number of ranks, 3");
  const std::vector<int> usable = usable_cpus();
  ASSERT_FALSE(usable.empty());
  expect({fmt::format("affinity={}", usable.front()), "threads=3"}, "cannot bind 3 threads to 1 CPUs");
  expect({fmt::format("affinity={}-{}", usable.front(), usable.back() + 1), "threads=3"},
         "is not available to this process");
  expect({"device=cpu,cpu", "threads=3"}, "device 'cpu,cpu' lists 2 devices for 3 ranks");
  expect({"parallel.tp=2"}, "determinism: bitwise with parallel.tp 2");
  expect({"parallel.tp=2", "parallel.units=8", "threads=6"},
         "parallel.units is 8, which does not divide the model's 4 attention heads");
  expect({"parallel.tp=3", "determinism=fast", "threads=9"},
         "tp is 3, which does not divide the model's 4 attention heads");
  expect({"parallel.pp=5", "threads=15"}, "the model has 4 blocks, fewer than pp x chunks, 5");
}

class Faults : public Resume {};
INSTANTIATE_TEST_SUITE_P(Precision, Faults, testing::Values("bf16"), [](const auto& i) { return i.param; });

TEST_P(Faults, AFullDiskDuringACheckpointKeepsTheLastOne) {
  ASSERT_EQ(ingot(command("full", {"steps=3"})).code, 0);
  const std::string before = read_file(run("full") / "checkpoints" / "step-3" / "manifest.json");
  // A file size limit stands for a full disk: the checkpoint exceeds it, the events do not.
  Process process(command("full", {"--resume", "steps=6"}), 1 << 20);
  ASSERT_EQ(process.wait(std::chrono::minutes(5)), 4) << process.result().error;
  EXPECT_NE(process.result().error.find("checkpoints"), std::string::npos) << process.result().error;
  EXPECT_EQ(read_file(run("full") / "checkpoints" / "step-3" / "manifest.json"), before);
  ASSERT_EQ(ingot(command("full", {"--resume", "steps=6"})).code, 0);
}

TEST_P(Faults, ResumingWithoutACheckpointIsAnErrorAndFreshRestarts) {
  {
    Process process(command("killed", {"steps=100000", "checkpoint.every=0", "checkpoint.minutes=0"}));
    while (!fs::exists(run("killed") / "events.jsonl") || curve("killed").size() < 4) {
      ASSERT_FALSE(process.wait(std::chrono::milliseconds(20))) << process.result().error;
    }
    process.kill(SIGKILL);
  }
  const auto refuses = [&](const std::string& word, int code, const std::string& words, const std::string& hint) {
    std::vector<std::string> more = {"steps=4"};
    if (!word.empty()) more.push_back(word);
    const Result result = ingot(command("killed", more));
    EXPECT_EQ(result.code, code) << result.error;
    EXPECT_NE(result.error.find(words), std::string::npos) << result.error;
    EXPECT_NE(result.error.find(hint), std::string::npos) << result.error;
  };
  refuses("--resume", 3, (run("killed") / "checkpoints").string() + ": there is no checkpoint to continue from",
          "--resume=fresh restarts the run");
  refuses("", 2, "a run already exists", "--resume=fresh");
  refuses("--resume=later", 2, "--resume=later", "--resume=fresh");

  const Result fresh = ingot(command("killed", {"steps=4", "--resume=fresh"}));
  ASSERT_EQ(fresh.code, 0) << fresh.error;
  EXPECT_NE(fresh.error.find("steps 1 to 4"), std::string::npos) << fresh.error;
  const std::vector<std::string> lines = curve("killed");
  EXPECT_EQ(std::ranges::count_if(lines, [](const std::string& line) { return !line.starts_with("eval"); }), 4);
  refuses("--resume=fresh", 2, "this one has that of step 4", "continue it with --resume");
}

TEST_P(Faults, ResumeAutoBeginsAndContinues) {
  const Result started = ingot(command("auto", {"steps=4", "--resume=auto"}));
  ASSERT_EQ(started.code, 0) << started.error;
  EXPECT_NE(started.error.find("steps 1 to 4"), std::string::npos) << started.error;
  const Result continued = ingot(command("auto", {"steps=6", "--resume=auto"}));
  ASSERT_EQ(continued.code, 0) << continued.error;
  EXPECT_NE(continued.error.find("steps 5 to 6"), std::string::npos) << continued.error;
}

TEST_P(Faults, ResumingAFinishedRunSaysSo) {
  ASSERT_EQ(ingot(command("finished", {"steps=3"})).code, 0);
  const std::string before = weights("finished");
  const std::vector<std::string> steps = curve("finished");
  fs::remove_all(run("finished") / "model");  // as if it had been killed before it wrote the model
  const Result again = ingot(command("finished", {"steps=3", "--resume"}));
  EXPECT_EQ(again.code, 0) << again.error;
  EXPECT_NE(again.error.find("run: already finished: 3 of 3 steps"), std::string::npos) << again.error;
  EXPECT_EQ(again.error.find("steps 4 to 3"), std::string::npos) << again.error;
  EXPECT_NE(again.output.find("finished             all 3 steps were already done"), std::string::npos) << again.output;
  EXPECT_EQ(again.output.find("tokens/s"), std::string::npos) << again.output;
  EXPECT_EQ(weights("finished"), before);
  EXPECT_EQ(curve("finished"), steps);
}

TEST_P(Faults, OtherSettingsAreRefusedByName) {
  ASSERT_EQ(ingot(command("other", {"steps=3"})).code, 0);
  const Result again = ingot(command("other", {"steps=6"}));
  EXPECT_EQ(again.code, 2);
  EXPECT_NE(again.error.find("--resume"), std::string::npos);
  const Result seed = ingot(command("other", {"--resume", "steps=6", "data.seed=99"}));
  EXPECT_EQ(seed.code, 2);
  EXPECT_NE(seed.error.find("data_seed was 17 and is now 99"), std::string::npos) << seed.error;
}

TEST_P(Faults, AnotherBaseIsRefused) {
  ASSERT_EQ(ingot(command("one", {"steps=2"})).code, 0);
  ASSERT_EQ(ingot(command("two", {"steps=2", "seed=5"})).code, 0);
  const auto tuned = [&](const std::string& base, std::vector<std::string> more) {
    std::vector<std::string> words = {"init=pretrained", "model=" + (run(base) / "model").string(), "adapter.rank=2"};
    words.insert(words.end(), more.begin(), more.end());
    return ingot(command("tuned", words));
  };
  ASSERT_EQ(tuned("one", {"steps=2"}).code, 0);
  ASSERT_EQ(tuned("one", {"steps=4", "--resume"}).code, 0);
  const Result other = tuned("two", {"steps=6", "--resume"});
  EXPECT_EQ(other.code, 2);
  EXPECT_NE(other.error.find("base was"), std::string::npos) << other.error;
}

TEST_P(Faults, ADamagedCheckpointIsRefused) {
  ASSERT_EQ(ingot(command("damaged", {"steps=3"})).code, 0);
  const fs::path step = run("damaged") / "checkpoints" / "step-3";
  fs::path shard;
  for (const auto& entry : fs::directory_iterator(step)) {
    if (entry.path().extension() == ".safetensors") shard = entry.path();
  }
  std::fstream file(shard, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(fs::file_size(shard) / 2));
  file.put('\x5a');
  file.close();
  const Result result = ingot(command("damaged", {"--resume", "steps=6"}));
  EXPECT_EQ(result.code, 3);
  EXPECT_NE(result.error.find(shard.filename().string()), std::string::npos) << result.error;
}

TEST_P(Faults, MistakesGiveOneLineAndTheRightExitCode) {
  const auto expect = [&](std::vector<std::string> more, int code, const std::string& words) {
    std::vector<std::string> all = command("wrong");
    all.insert(all.end(), more.begin(), more.end());
    const Result result = ingot(all);
    EXPECT_EQ(result.code, code) << result.error;
    EXPECT_NE(result.error.find(words), std::string::npos) << "expected '" << words << "' in: " << result.error;
  };
  expect({"optimizer.lrr=1"}, 2, "lr");
  expect({"model=/nowhere"}, 3, "/nowhere");
  expect({"data.train=/nowhere.jsonl"}, 3, "/nowhere.jsonl");
  expect({"data.sequence_length=100000"}, 2, "context");
  expect({"batch.micro=4000", "batch.global=4000", "data.sequence_length=512"}, 4, "saved activations");
  expect({"schedule.warmup_steps=99"}, 2, "schedule.warmup is 99 steps, but the run has only 24");
  expect({"schedule.warmup=100%"}, 2, "schedule.warmup");
  expect({"eval.prompts=[hello]", "eval.sample_tokens=100000"}, 2, "exceeds the model's context");
  std::ofstream(folder_ / "empty.jsonl").close();
  expect({"data.train=" + (folder_ / "empty.jsonl").string()}, 3, "empty.jsonl");
  expect({"run_dir=/proc/nowhere"}, 5, "/proc/nowhere");
}

}  // namespace
}  // namespace ingot::e2e
