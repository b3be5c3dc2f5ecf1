// Long runs: the automatic micro-batch, signals, restarts, the lock of the run folder, and replayed steps.
#include "tests/e2e/pretrain.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <functional>

#include "base/file.h"

namespace ingot::e2e {
namespace {

namespace fs = std::filesystem;

// Without settings, the clock limits what a crash can cost; with checkpoint.every, only steps count.
TEST_F(Pretrain, CheckpointsAreTimedUnlessSetBySteps) {
  ASSERT_NO_FATAL_FAILURE(trains("clock", {"steps=1"}));
  EXPECT_NE(read(run("clock") / "recipe.yaml").find("minutes: 5  #"), std::string::npos);
  EXPECT_NE(read(run("clock") / "recipe.yaml").find("keep: 2  #"), std::string::npos);
  ASSERT_NO_FATAL_FAILURE(trains("steps", {"steps=1", "checkpoint.every=3"}));
  EXPECT_NE(read(run("steps") / "recipe.yaml").find("minutes: 0  #"), std::string::npos);
}

TEST_F(Pretrain, AutomaticMicroBatchIsReportedAndChangesNoResult) {
  for (const char* determinism : {"fast", "bitwise"}) {
    const std::string d = determinism, setting = "determinism=" + d;
    ASSERT_NO_FATAL_FAILURE(trains(d + "-auto", {setting}));
    ASSERT_NO_FATAL_FAILURE(trains(d + "-one", {setting, "batch.micro=1"}));
    EXPECT_EQ(curve(d + "-auto"), curve(d + "-one"));
    EXPECT_EQ(curve(d + "-auto").size(), 6U);
    const Json start = events(d + "-auto", "start").at(0), one = events(d + "-one", "start").at(0);
    for (const Json& step : events(d + "-auto", "step")) EXPECT_GE(step["data_s"], 0);
    EXPECT_EQ(start["batch_micro"], 6);
    EXPECT_EQ(start["batch_micro_reason"], "the whole global batch");
    EXPECT_EQ(one["batch_micro"], 1);
    EXPECT_EQ(one["batch_micro_reason"], "set in the recipe");
    EXPECT_NE(read(run(d + "-auto") / "recipe.yaml").find("micro: 6"), std::string::npos);
  }
}

// The process that runs in the folder, according to its lock; 0 when there is none.
pid_t holder(const fs::path& run) {
  if (!fs::exists(run / "lock")) return 0;
  const std::string lock = read(run / "lock");
  const size_t at = lock.find("\npid ");
  return at == std::string::npos ? 0 : static_cast<pid_t>(std::stol(lock.substr(at + 5)));
}

class Cluster : public Pretrain {
 protected:
  std::vector<std::string> long_run(const std::string& name, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words = command(name, {"steps=60", "checkpoint.every=5", "batch.global=2"});
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  bool has(const std::string& name, const std::string& text) const {
    return fs::exists(run(name) / "events.jsonl") && read(run(name) / "events.jsonl").find(text) != std::string::npos;
  }
  // Waits until the run's events contain `text`; the limit of minutes is far above any machine's need.
  void wait_for(Process& process, const std::string& name, const std::string& text) const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(5);
    while (!has(name, text)) {
      ASSERT_FALSE(process.wait(std::chrono::milliseconds(5))) << process.result().error;
      ASSERT_LT(std::chrono::steady_clock::now(), end) << "no event holds " << text;
    }
  }
  // Kills the process that runs there as soon as it differs from `former`. Returns its number.
  void kill_holder(Process& process, const std::string& name, pid_t& former) const {
    pid_t pid = 0;
    while ((pid = holder(run(name))) <= 1 || pid == former) {
      ASSERT_FALSE(process.wait(std::chrono::milliseconds(5))) << process.result().error;
    }
    ::kill(pid, SIGKILL);
    former = pid;
  }
  // The supervisor's messages. A busy machine may add others.
  std::vector<std::string> restarts(const std::string& name) const {
    std::vector<std::string> all;
    for (const Json& e : events(name, "warning")) {
      const std::string message = e["message"];
      if (message.starts_with("the run failed")) all.push_back(message);
    }
    return all;
  }
};

TEST_F(Cluster, ASupervisedRunKilledTwiceEqualsOneNeverKilled) {
  ASSERT_EQ(program_.run(long_run("whole", {"steps=120", "checkpoint.every=10"})).code, 0);
  Process process(long_run("killed", {"steps=120", "checkpoint.every=10", "--restarts", "2", "--restart-wait", "0.1"}));
  pid_t victim = 0;
  for (const char* at : {R"({"type":"checkpoint",)", R"({"type":"step","step":31,)"}) {
    ASSERT_NO_FATAL_FAILURE(wait_for(process, "killed", at));
    ASSERT_NO_FATAL_FAILURE(kill_holder(process, "killed", victim));
  }
  ASSERT_EQ(process.wait(std::chrono::minutes(5)), 0) << process.result().error;
  EXPECT_EQ(curve("killed"), curve("whole"));
  const std::vector<std::string> reported = restarts("killed");
  ASSERT_EQ(reported.size(), 2U);
  EXPECT_NE(reported[0].find("signal 9"), std::string::npos) << reported[0];
  EXPECT_NE(reported[0].find("restart 1 of 2 from step "), std::string::npos) << reported[0];
  EXPECT_NE(reported[1].find("restart 2 of 2"), std::string::npos) << reported[1];
  EXPECT_NE(read(run("killed") / "log.txt").find("restart 2 of 2"), std::string::npos);
}

TEST_F(Cluster, RestartsAreBounded) {
  Process process(long_run("bounded", {"steps=100000", "checkpoint.every=0", "checkpoint.minutes=0", "--restarts", "1",
                                       "--restart-wait", "0"}));
  pid_t victim = 0;
  ASSERT_NO_FATAL_FAILURE(wait_for(process, "bounded", R"("step":7,)"));
  ASSERT_NO_FATAL_FAILURE(kill_holder(process, "bounded", victim));
  ASSERT_NO_FATAL_FAILURE(wait_for(process, "bounded", "restart 1 of 1 from its start"));
  ASSERT_NO_FATAL_FAILURE(wait_for(process, "bounded", R"("step":20,)"));
  ASSERT_NO_FATAL_FAILURE(kill_holder(process, "bounded", victim));
  EXPECT_EQ(process.wait(std::chrono::minutes(1)), 137);
  EXPECT_NE(process.result().error.find("1 restarts are used up"), std::string::npos) << process.result().error;
}

TEST_F(Cluster, PermanentErrorsAreNotRetried) {
  for (const auto& [setting, code] : {std::pair("data.train=/nowhere.jsonl", 3),
                                      std::pair("schedule.warmup_steps=99", 2), std::pair("batch.micro=1000000", 0)}) {
    const std::string global = code == 0 ? "batch.global=1000000" : "batch.global=2";
    const Result result =
        program_.run(long_run("never", {setting, global, "data.sequence_length=512", "--restarts", "3"}));
    EXPECT_EQ(result.code, code == 0 ? 4 : code) << result.error;
    EXPECT_EQ(result.error.find("restart"), std::string::npos) << result.error;
  }
  const Result launcher = program_.run(long_run("never", {"--launcher", "mpirun"}));
  EXPECT_EQ(launcher.code, 2) << launcher.error;
}

TEST_F(Cluster, ASupervisedRunDoesNotReadTheSupervisorsInput) {
  write(program_ / "launch.sh", "readlink /proc/self/fd/0 >" + (program_ / "input").string() + "\nexec \"$@\"\n");
  const std::string launcher = "sh " + (program_ / "launch.sh").string();
  const Result result =
      program_.run(long_run("never", {"data.train=/nowhere.jsonl", "--restarts", "1", "--launcher", launcher}),
                   "for the supervisor");
  EXPECT_EQ(result.code, 3) << result.error;
  EXPECT_EQ(read(program_ / "input"), "/dev/null\n");
}

// The signal goes to the supervisor and to the run at once, as schedulers send it: there is one checkpoint and one end.
TEST_F(Cluster, SignalsWriteACheckpointAndEndTheSupervisorToo) {
  auto* const inherited = ::signal(SIGHUP, SIG_DFL);  // the tests themselves may run under nohup
  for (const int signal : {SIGTERM, SIGHUP, SIGUSR1}) {
    const std::string name = "signal-" + std::to_string(signal);
    Process process(long_run(name, {"--restarts", "3", "steps=100000", "checkpoint.every=0", "checkpoint.minutes=0"}));
    ASSERT_NO_FATAL_FAILURE(wait_for(process, name, R"("step":4,)"));
    const pid_t child = holder(run(name));
    ASSERT_GT(child, 1);
    process.kill(signal);
    ::kill(child, signal);
    ASSERT_EQ(process.wait(std::chrono::minutes(1)), 130) << process.result().error;
    EXPECT_EQ(events(name, "checkpoint").size(), 1U);
    ASSERT_EQ(events(name, "end").size(), 1U);
    EXPECT_EQ(events(name, "end")[0]["reason"], "stopped");
    EXPECT_EQ(restarts(name).size(), 0U);
    EXPECT_EQ(holder(run(name)), 0) << "the lock was not released";
  }
  ::signal(SIGHUP, inherited);
}

TEST_F(Cluster, ARunWhoseSupervisorDiesStopsWithACheckpoint) {
  Process process(
      long_run("orphan", {"--restarts", "3", "steps=100000", "checkpoint.every=0", "checkpoint.minutes=0"}));
  ASSERT_NO_FATAL_FAILURE(wait_for(process, "orphan", R"("step":4,)"));
  process.kill(SIGKILL);
  for (int i = 0; i < 6000 && !has("orphan", R"({"type":"end")"); ++i) ::usleep(10'000);
  EXPECT_EQ(events("orphan", "checkpoint").size(), 1U);
}

TEST_F(Cluster, ASecondRunInTheSameFolderIsRefused) {
  Process process(long_run("shared", {"steps=100000", "checkpoint.every=0", "checkpoint.minutes=0"}));
  ASSERT_NO_FATAL_FAILURE(wait_for(process, "shared", R"("step":2,)"));
  for (const char* resume : {"--resume", "--resume=fresh"}) {
    const Result second = program_.run(long_run("shared", {"steps=100000", resume}));
    EXPECT_EQ(second.code, 5) << second.error;
    EXPECT_NE(second.error.find("in use by another process: process " + std::to_string(holder(run("shared")))),
              std::string::npos)
        << second.error;
  }
  // Another process has taken the folder over, as after this machine was unreachable: the run ends and says so.
  fs::remove(run("shared") / "lock");
  write(run("shared") / "lock", "host far-away\nplace other/pid:[1]\npid 77\nstarted 5\nsince then\ntoken abc\n");
  ASSERT_EQ(process.wait(std::chrono::minutes(1)), 5) << process.result().error;
  EXPECT_NE(process.result().error.find("another process has taken the lock"), std::string::npos)
      << process.result().error;
}

// Replays a step, also after a bit of the recorded run was changed.
class Replayed : public Pretrain {
 protected:
  // Steps 1 to 7 with checkpoints of 3, 6 and 7.
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(trains("run", {"steps=7", "checkpoint.every=3", "checkpoint.keep=9"}));
  }

  std::string folder() const { return run("run").string(); }
  Json replay(int64_t step, int code, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words = {"replay", folder(), "--step", std::to_string(step), "--json"};
    words.insert(words.end(), more.begin(), more.end());
    const Result result = program_.run(words);
    EXPECT_EQ(result.code, code) << result.error << result.output;
    SCOPED_TRACE(result.error);
    return json_of(result);
  }
  void refuses(std::vector<std::string> more, int code, const std::string& words) const {
    more.insert(more.begin(), {"replay", folder()});
    const Result result = program_.run(more);
    EXPECT_EQ(result.code, code) << result.error;
    EXPECT_NE(result.error.find(words), std::string::npos) << result.error;
  }
  // Edits the text of a file by `change`.
  void edit(const fs::path& path, const std::function<void(std::string&)>& change) const {
    std::string text = read(path);
    change(text);
    write(path, text);
  }
};

TEST_F(Replayed, StepsAreReproducedBitForBit) {
  const std::string before = read(run("run") / "events.jsonl");
  const Json from_checkpoint = replay(5, 0), from_beginning = replay(2, 0), last = replay(7, 0);
  EXPECT_EQ(from_checkpoint["from"], 3);
  EXPECT_EQ(from_checkpoint["steps"].size(), 2U);
  EXPECT_EQ(from_checkpoint["to_the_bit"], true);
  EXPECT_EQ(from_checkpoint["tensors_that_differ"], nullptr) << "there is no checkpoint of step 5";
  EXPECT_EQ(from_beginning["from"], 0);
  EXPECT_EQ(last["from"], 6);
  EXPECT_EQ(last["tensors_that_differ"], Json::array());
  EXPECT_EQ(replay(6, 0, {"batch.micro=1"})["agrees"], true);
  EXPECT_EQ(read(run("run") / "events.jsonl"), before) << "a replay changed the run";
}

// On a GPU with determinism: fast a micro-batch is one contribution to the gradients.
TEST_F(Pretrain, ReplayOnAGpuWithAnotherMicroBatchAllowsForRounding) {
  ASSERT_NO_FATAL_FAILURE(trains("sim", {"model=" + narrow_model(), "device=sim32", "steps=2", "batch.global=2",
                                         "batch.micro=2", "data.sequence_length=32", "threads=2"}));
  const auto replay = [&](const std::string& micro) {
    const Result result = program_.run({"replay", run("sim").string(), "--json", "batch.micro=" + micro});
    EXPECT_EQ(result.code, 0) << result.output << result.error;
    return json_of(result);
  };
  EXPECT_EQ(replay("2")["to_the_bit"], true);
  const Json other = replay("1");
  EXPECT_EQ(other["to_the_bit"], false);
  EXPECT_EQ(other["agrees"], true);
}

TEST_F(Replayed, AChangedBitOfARecordedLossIsFound) {
  edit(run("run") / "events.jsonl", [](std::string& text) {
    const size_t at = text.find("\"loss\":", text.find(R"({"type":"step","step":5,)")) + 7;
    const double loss = std::stod(text.substr(at));
    text.replace(at, text.find(',', at) - at, Json(std::nextafter(loss, 0)).dump());
  });
  const Json found = replay(5, 3);
  EXPECT_EQ(found["agrees"], false);
  EXPECT_EQ(found["steps"][0]["agrees"], true);
  EXPECT_EQ(found["steps"][1]["agrees"], false);
  EXPECT_EQ(replay(4, 0)["agrees"], true);
}

TEST_F(Replayed, WrongWeightsInACheckpointAreFound) {
  // An intact checkpoint, but of a run with another learning rate.
  ASSERT_NO_FATAL_FAILURE(
      trains("other", {"steps=7", "checkpoint.every=3", "checkpoint.keep=9", "optimizer.lr=1.01e-3"}));
  fs::remove_all(run("run") / "checkpoints/step-6");
  fs::copy(run("other") / "checkpoints/step-6", run("run") / "checkpoints/step-6");
  const Json into = replay(6, 3);  // arrives at other weights, after steps that agree
  EXPECT_EQ(into["steps"].back()["agrees"], true);
  EXPECT_NE(into["tensors_that_differ"], Json::array());
  const Json from = replay(7, 3);  // starts from them
  EXPECT_EQ(from["agrees"], false);
}

TEST_F(Replayed, ADamagedCheckpointIsNamed) {
  for (const auto& entry : fs::directory_iterator(run("run") / "checkpoints/step-3")) {
    if (entry.path().extension() != ".safetensors") continue;
    edit(entry.path(), [](std::string& bytes) { bytes[bytes.size() / 2] ^= 1; });
  }
  refuses({"--step", "5"}, 3, "step-3: file");
}

TEST_F(Replayed, OnAnotherKindOfDeviceItAgreesToRounding) {
  edit(run("run") / "events.jsonl", [](std::string& text) {
    // Changes the recorded device of the run.
    const size_t at = text.find(R"("device":"cpu )") + 14;
    text.replace(at, text.find('"', at) - at, "other");
    const size_t loss = text.find("\"loss\":", text.find(R"({"type":"step","step":5,)")) + 7;
    text.replace(loss, text.find(',', loss) - loss, Json(std::stod(text.substr(loss)) * 1.0001).dump());
  });
  const Json found = replay(5, 0);
  EXPECT_EQ(found["to_the_bit"], false);
  EXPECT_GT(found["steps"][1]["allowed"], 0.0001);
  edit(run("run") / "events.jsonl", [](std::string& text) {
    const size_t loss = text.find("\"loss\":", text.find(R"({"type":"step","step":5,)")) + 7;
    text.replace(loss, text.find(',', loss) - loss, Json(std::stod(text.substr(loss)) * 2).dump());
  });
  EXPECT_EQ(replay(5, 3)["agrees"], false);
}

// Steps 8 to 10 by two ranks, 11 and 12 by one.
TEST_F(Replayed, StepsOfFastRanksAgreeToRoundingAndOthersBitForBit) {
  const std::vector<std::string> more = {"checkpoint.every=3", "checkpoint.keep=9", "--resume"};
  const auto can_continue = [&](std::vector<std::string> settings) {
    settings.insert(settings.end(), more.begin(), more.end());
    trains("run", settings);
  };
  ASSERT_NO_FATAL_FAILURE(can_continue({"steps=10", "parallel.dp=2", "threads=2", "device=cpu"}));
  ASSERT_NO_FATAL_FAILURE(can_continue({"steps=12"}));
  EXPECT_EQ(replay(7, 0)["to_the_bit"], true);
  EXPECT_EQ(replay(10, 0)["to_the_bit"], false);
  EXPECT_EQ(replay(12, 0)["to_the_bit"], true);
}

TEST_F(Replayed, StepsThatCannotBeReplayedAreErrors) {
  refuses({"--step", "8"}, 2, "steps 1 to 7");
  program_.refuses({"replay", (program_ / "nowhere").string(), "--step", "1"}, 3, "nowhere");
  refuses({"--step", "5", "data.seed=3"}, 2, "data_seed");
}

}  // namespace
}  // namespace ingot::e2e
