// Ctrl-C and hang-up: exit code 130, a one-line message, and the files that each command promises. Signals are sent
// once the program's output shows that it is working.
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>

#include "tests/e2e/program.h"
#include "tests/locations.h"

namespace ingot::e2e {
namespace {

namespace fs = std::filesystem;

class Interrupt : public testing::Test {
 protected:
  Interrupt() {
    // A text that generation does not end by itself.
    edit("config.json", [](Json& c) { c["max_position_embeddings"] = 60000; });
  }

  void edit(const char* name, const std::function<void(Json&)>& change) const {
    Json json = Json::parse(read(fs::path(model_) / name));
    change(json);
    write(fs::path(model_) / name, json.dump());
  }

  std::string path(const char* name) const { return (program_ / name).string(); }
  // Writes a text of `lines` lines and returns its path.
  std::string text(const char* name, int lines) const {
    std::string all;
    for (int i = 0; i < lines; ++i) all += "Line " + std::to_string(i) + " says nothing that line 1 has not said.\n";
    write(program_ / name, all);
    return path(name);
  }

  // Starts the program, sends the signal once `at_work` holds, and expects exit code 130.
  static Result interrupt(const std::vector<std::string>& arguments, const std::function<bool(const Process&)>& at_work,
                          int signal = SIGINT) {
    Process process(arguments);
    while (!at_work(process)) {
      if (process.wait(std::chrono::milliseconds(10))) {
        ADD_FAILURE() << "the program ended before the signal: " << process.result().error;
        return process.result();
      }
    }
    process.kill(signal);
    EXPECT_EQ(process.wait(std::chrono::minutes(5)), 130) << process.result().error;
    return process.result();
  }

  Program program_;
  std::string model_ = make_text_model(program_, false);
};

TEST_F(Interrupt, GenerateEndsWithAMessage) {
  // No token ends the generation.
  edit("config.json", [](Json& c) { c.erase("eos_token_id"); });
  edit("tokenizer_config.json", [](Json& c) { c.erase("eos_token"); });
  const Result result = interrupt({"generate", "--model", model_, "--prompt", "Hello", "--max-tokens", "50000",
                                   "--temperature", "1", "--threads", "1", "--device", "cpu"},
                                  [](const Process& p) { return !p.result().output.empty(); });
  EXPECT_EQ(result.error, "ingot: stopped\n");
}

// The disposition of SIGHUP that the test's parent chose: tests may run under nohup.
class HangUp {
 public:
  explicit HangUp(void (*handler)(int)) : before_(::signal(SIGHUP, handler)) {}
  HangUp(const HangUp&) = delete;
  HangUp& operator=(const HangUp&) = delete;
  ~HangUp() { ::signal(SIGHUP, before_); }

 private:
  void (*before_)(int);
};

TEST_F(Interrupt, HangUpEndsOtherCommandsToo) {
  const HangUp inherited(SIG_DFL);
  const Result result = interrupt(
      {"eval", "--model", model_, "--data", text("long.txt", 40000), "--threads", "1", "--sequence-length", "8192",
       "--json"},
      [](const Process& p) { return p.result().error.find("loss") != std::string::npos; }, SIGHUP);
  EXPECT_TRUE(result.error.ends_with("\ningot: stopped\n")) << result.error;
}

TEST_F(Interrupt, ScoreLeavesNoPartialFile) {
  const std::string logits = path("logits.npy");
  const Result result = interrupt({"score", "--model", model_, "--file", text("long.txt", 1000), "--threads", "1",
                                   "--device", "cpu", "--logits-out", logits, "--json"},
                                  [&](const Process&) { return fs::exists(logits + ".partial"); });
  EXPECT_EQ(result.error, "ingot: stopped\n");
  EXPECT_EQ(result.output, "");
  EXPECT_FALSE(fs::exists(logits));
}

TEST_F(Interrupt, EvalEndsWithAMessage) {
  const Result result = interrupt({"eval", "--model", model_, "--data", text("long.txt", 40000), "--threads", "1",
                                   "--sequence-length", "8192", "--json"},
                                  [](const Process& p) { return p.result().error.find("loss") != std::string::npos; });
  EXPECT_TRUE(result.error.ends_with("\ningot: stopped\n")) << result.error;
  EXPECT_EQ(result.output, "");
}

class InterruptFinetune : public Interrupt {
 protected:
  std::vector<std::string> command(const std::string& eval, std::vector<std::string> more = {}) const {
    write(program_ / "recipe.yaml",
          "name: run\nmodel: " + model_ + "\nadapter: {rank: 2}\ndata: {train: " + text("train.txt", 100) +
              ", eval: " + eval + ", sequence_length: 64}\nsteps: 100000\nbatch: {global: 1}\nthreads: 1\n");
    std::vector<std::string> words = {"finetune", path("recipe.yaml"), "run_dir=" + path("runs")};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  fs::path run() const { return program_ / "runs" / "run"; }
  bool has(const std::string& event) const {
    return fs::exists(run() / "events.jsonl") && read(run() / "events.jsonl").find(event) != std::string::npos;
  }
  // The run stopped with a checkpoint of its last step.
  void expect_stopped() const {
    const std::vector<Json> ends = events_of(run(), "end");
    ASSERT_EQ(ends.size(), 1U);
    EXPECT_EQ(ends[0]["reason"], "stopped");
    EXPECT_TRUE(fs::exists(run() / "checkpoints" / ("step-" + ends[0]["step"].dump()) / "manifest.json"));
  }
};

TEST_F(InterruptFinetune, HangUpWritesACheckpoint) {
  const HangUp inherited(SIG_DFL);
  interrupt(command(text("eval.txt", 10)), [&](const Process&) { return has(R"("step":3)"); }, SIGHUP);
  expect_stopped();
}

TEST_F(InterruptFinetune, HangUpIgnoredAtTheStartChangesNothing) {
  const HangUp inherited(SIG_IGN);  // as nohup sets it
  Process process(command(text("eval.txt", 10)));
  int64_t hung_up = 0;  // the step at which SIGHUP was sent
  while (hung_up == 0 || !has("\"step\":" + std::to_string(hung_up + 5) + ",")) {
    ASSERT_FALSE(process.wait(std::chrono::milliseconds(10))) << process.result().error;
    if (hung_up > 0 || !has(R"("step":3)")) continue;
    const std::string events = read(run() / "events.jsonl");
    const std::string kind = R"({"type":"step",)";
    for (size_t at = 0; (at = events.find(kind, at)) != std::string::npos; ++at) ++hung_up;
    process.kill(SIGHUP);
  }
  process.kill(SIGTERM);
  EXPECT_EQ(process.wait(std::chrono::minutes(5)), 130) << process.result().error;
  expect_stopped();
}

// A terminal that disappears, like an ssh connection: writing to it fails.
TEST_F(InterruptFinetune, AClosedTerminalWritesACheckpoint) {
  const HangUp inherited(SIG_DFL);
  std::vector<std::string> words = command(text("eval.txt", 10), {"--quiet"});
  words.insert(words.begin(), ingot_executable);
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  make_home(path("home"));
  int terminal = -1;
  const pid_t child = ::forkpty(&terminal, nullptr, nullptr, nullptr);
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::setenv("INGOT_HOME", path("home").c_str(), 1);  // the child has one thread; not the user's folder
    ::execv(pointers[0], pointers.data());
    ::_exit(127);
  }
  int status = 0;
  while (!has(R"("step":3)")) {
    ASSERT_EQ(::waitpid(child, &status, WNOHANG), 0) << "the program ended before the signal";
    ::usleep(10'000);
  }
  ::close(terminal);
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 130) << status;
  expect_stopped();
}

TEST_F(InterruptFinetune, InterruptWritesACheckpointAndTheRunResumes) {
  const std::string eval = text("eval.txt", 10);
  const Result result = interrupt(command(eval), [&](const Process&) { return has(R"("step":3)"); });
  const size_t at = result.error.find("stopped after step ");
  ASSERT_NE(at, std::string::npos) << result.error;
  const int64_t step = std::stoll(result.error.substr(at + 19));
  EXPECT_GE(step, 3);
  EXPECT_NE(result.error.find("--resume", at), std::string::npos);
  EXPECT_TRUE(fs::exists(run() / "checkpoints" / ("step-" + std::to_string(step)) / "manifest.json"));
  EXPECT_FALSE(fs::exists(run() / "adapter"));
  const std::string end = read(run() / "events.jsonl");
  EXPECT_NE(end.find(R"("reason":"stopped")"), std::string::npos);
  const Result resumed = ingot(command(eval, {"--resume", "steps=" + std::to_string(step + 2)}));
  EXPECT_EQ(resumed.code, 0) << resumed.error;
  EXPECT_TRUE(fs::exists(run() / "adapter" / "adapter_config.json"));
}

// A checkpoint cannot be written. Both ranks have traced fewer steps than were asked for.
TEST_F(InterruptFinetune, AFailedRunWritesItsTracesAndItsEnd) {
  Process process(command(text("eval.txt", 10), {"eval.every=0", "parallel.dp=2", "batch.global=2", "threads=2",
                                                 "checkpoint.every=900", "log.trace=1000"}));
  while (!has(R"("step":3)")) ASSERT_FALSE(process.wait(std::chrono::milliseconds(1))) << process.result().error;
  fs::remove_all(run() / "checkpoints");
  write(run() / "checkpoints", "no folder");
  EXPECT_EQ(process.wait(std::chrono::minutes(5)), 5) << process.result().error;
  const std::vector<Json> ends = events_of(run(), "end");
  ASSERT_EQ(ends.size(), 1U) << process.result().error;
  EXPECT_EQ(ends[0]["reason"], "failed");
  EXPECT_EQ(ends[0]["step"], 900);
  EXPECT_NE(ends[0]["error"].get<std::string>().find("checkpoints"), std::string::npos) << ends[0];
  for (const int rank : {0, 1}) {
    int64_t updates = 0;
    const Json trace = Json::parse(read(run() / "trace" / ("rank-" + std::to_string(rank) + ".json")));
    for (const Json& event : trace["traceEvents"]) updates += event["name"] == "update 0";
    EXPECT_EQ(updates, 900);
  }
}

// While the data are read there is no state to store.
TEST_F(InterruptFinetune, InterruptBeforeTheFirstStepLeavesNoFiles) {
  const Result result = interrupt(command(text("eval.txt", 400000)), [](const Process& p) {
    return p.result().error.find("training data: ") != std::string::npos;
  });
  EXPECT_TRUE(result.error.ends_with("\ningot: stopped\n")) << result.error;
  EXPECT_FALSE(fs::exists(run()));
}

// The model file is truncated during use. These bf16 weights are mapped and not copied.
class CutShort : public InterruptFinetune {
 protected:
  fs::path weights() const { return fs::path(model_) / "model.safetensors"; }
  void cut_and_expect_its_name(const std::vector<std::string>& arguments,
                               const std::function<bool(const Process&)>& at_work) {
    Process process(arguments);
    while (!at_work(process)) {
      if (process.wait(std::chrono::milliseconds(10))) {
        FAIL() << "the program ended before the signal: " << process.result().error;
      }
    }
    fs::resize_file(weights(), 4096);
    EXPECT_EQ(process.wait(std::chrono::minutes(5)), 3) << process.result().error;
    EXPECT_NE(process.result().error.find(weights().string() + ": it was truncated"), std::string::npos)
        << process.result().error;
  }
};

TEST_F(CutShort, FinetuneReportsItAndWritesNothingMore) {
  cut_and_expect_its_name(command(text("eval.txt", 10), {"precision=bf16", "eval.every=0"}), [&](const Process&) {
    return read(run() / "events.jsonl").find(R"("step":3)") != std::string::npos;
  });
  EXPECT_FALSE(fs::exists(run() / "adapter"));
}

TEST_F(CutShort, GenerateReportsIt) {
  edit("config.json", [](Json& c) { c.erase("eos_token_id"); });
  edit("tokenizer_config.json", [](Json& c) { c.erase("eos_token"); });
  cut_and_expect_its_name({"generate", "--model", model_, "--prompt", "Hello", "--max-tokens", "50000", "--temperature",
                           "1", "--threads", "2", "--device", "cpu", "--dtype", "bf16"},
                          [](const Process& p) { return !p.result().output.empty(); });
}

}  // namespace
}  // namespace ingot::e2e
