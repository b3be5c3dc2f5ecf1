// Checkpoints in an object store: a run whose machine is lost continues on another one, despite faults of the store.
#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <sstream>
#include <thread>

#include "tests/e2e/program.h"
#include "tests/storage/s3_server.h"

namespace ingot::e2e {
namespace {

namespace fs = std::filesystem;
using Fault = S3Server::Fault;
using Request = S3Server::Request;

class CheckpointStore : public testing::Test {
 protected:
  CheckpointStore() {
    server_.announce();
    server_.page = 1000;
    std::string text;
    for (int i = 0; i < 60; ++i)
      text += R"({"text": "Document )" + std::to_string(i * i) +
              R"( is one of many."})"
              "\n";
    write(program_ / "train.jsonl", text);
    write(program_ / "recipe.yaml",
          "name: run\nmodel: " + make_text_model(program_, false) +
              "\ninit: random\ndata: {train: " + (program_ / "train.jsonl").string() +
              ", sequence_length: 32}\ndeterminism: bitwise\nsteps: 6\nbatch: {global: 2}\ndevice: cpu\nthreads: 1\n"
              "schedule: {name: constant}\ncheckpoint: {every: 2, keep: 2}\n");
  }
  // Arguments for the run on a machine. Machines share nothing but the store.
  std::vector<std::string> command(const std::string& machine, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words = {"pretrain", (program_ / "recipe.yaml").string(),
                                      "run_dir=" + (program_ / machine).string(), "checkpoint.store=s3://bucket/runs",
                                      "--quiet"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  void trains(const std::string& machine, const std::vector<std::string>& more = {}) const {
    const Result result = program_.run(command(machine, more));
    EXPECT_EQ(result.code, 0) << result.error;
  }
  fs::path run(const std::string& machine) const { return program_ / machine / "run"; }
  std::string hash(const std::string& machine) const {
    return program_.report({"model", "inspect", (run(machine) / "model").string(), "--hash"}).at("sha256");
  }
  std::vector<Json> events(const std::string& machine, const std::string& type) const {
    return events_of(run(machine), type);
  }
  // The steps that the store holds according to the run's events.
  std::vector<int64_t> stored(const std::string& machine) const {
    std::vector<int64_t> steps;
    for (const Json& event : events(machine, "checkpoint")) {
      if (event["path"].get<std::string>().starts_with("s3://bucket/runs/run/checkpoints/step-")) {
        steps.push_back(event["step"]);
      }
    }
    return steps;
  }
  bool warned(const std::string& machine, const std::string& words) const {
    for (const Json& event : events(machine, "warning")) {
      if (event["message"].get<std::string>().find(words) != std::string::npos) return true;
    }
    return false;
  }
  std::string uninterrupted() const {
    trains("uninterrupted", {"checkpoint.store=" + (program_ / "disk").string()});
    return hash("uninterrupted");
  }

  // Unblocks the server's threads, also when a test ends early.
  void TearDown() override { over_ = true; }

  // Used by the fault handler. Declared before the server, so that it outlives the server's threads.
  std::atomic<bool> over_ = false, half_ = false, killed_ = false, faulty_ = true;
  S3Server server_;
  Program program_;
};

TEST_F(CheckpointStore, TwoRanksContinueARunOfALostMachine) {
  const std::string whole = uninterrupted();
  EXPECT_TRUE(fs::exists(program_ / "disk/run/checkpoints/step-6/manifest.json"));  // a local folder may be the store
  // The process is killed while a checkpoint after that of step 2 is half uploaded.
  server_.fault = [&](const Request& request, size_t) {
    const bool manifest = request.method == "PUT" && request.key.ends_with("/manifest.json");
    if (!killed_ && manifest && !request.key.ends_with("step-2/manifest.json")) {
      half_ = true;
      while (!killed_ && !over_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return Fault::denied;
    }
    return Fault::none;
  };
  Process lost(command("lost", {"steps=200"}));
  while (!half_) ASSERT_FALSE(lost.wait(std::chrono::milliseconds(5))) << lost.result().error;
  lost.kill(SIGKILL);
  killed_ = true;
  fs::remove_all(program_ / "lost");
  EXPECT_EQ(server_.object("bucket/runs/run/checkpoints/latest"), "step-2\n");
  const Result again = program_.run(command("elsewhere"));
  EXPECT_EQ(again.code, 2);
  EXPECT_NE(again.error.find("s3://bucket/runs/run/checkpoints: a run already exists"), std::string::npos);
  const Result seed = program_.run(command("elsewhere", {"--resume", "data.seed=3"}));
  EXPECT_EQ(seed.code, 2);
  EXPECT_NE(seed.error.find("checkpoints/step-2 cannot be continued: data_seed was 17 and is now 3"), std::string::npos)
      << seed.error;
  trains("elsewhere", {"--resume", "parallel.dp=2", "parallel.zero=2", "threads=2"});
  EXPECT_EQ(events("elsewhere", "start").at(0)["first_step"], 3);
  EXPECT_TRUE(warned("elsewhere", "continued from s3://bucket/runs/run/checkpoints/step-2"));
  EXPECT_EQ(hash("elsewhere"), whole);
  EXPECT_EQ(stored("elsewhere").back(), 6);
  EXPECT_EQ(server_.object("bucket/runs/run/checkpoints/latest"), "step-6\n");
  EXPECT_EQ(server_.unfinished_uploads(), 0U);
  EXPECT_EQ(server_.problem(), "");
}

TEST_F(CheckpointStore, TransientFaultsDoNotChangeTheRun) {
  server_.fault = S3Server::passing([](size_t number) {
    return number % 12 == 1   ? Fault::busy
           : number % 12 == 5 ? Fault::reset
           : number % 12 == 8 ? Fault::truncate
                              : Fault::none;
  });
  trains("first", {"steps=3"});
  EXPECT_EQ(stored("first").back(), 3);
  trains("second", {"--resume"});
  EXPECT_EQ(hash("second"), uninterrupted());
}

TEST_F(CheckpointStore, ADamagedCheckpointIsNamedAndNoEarlierOneUsed) {
  trains("first", {"steps=4"});
  const std::string key = "bucket/runs/run/checkpoints/step-4/model.safetensors";
  std::string bytes = server_.object(key);
  bytes[bytes.size() / 2] ^= 1;
  server_.put(key, bytes);
  const Result result = program_.run(command("second", {"--resume"}));
  EXPECT_EQ(result.code, 3);
  for (const char* words : {"s3://bucket/runs/run/checkpoints/step-4: file 'model.safetensors'", "SHA-256",
                            "remove it (s3://bucket/runs/run/checkpoints/step-4) to continue from step"}) {
    EXPECT_NE(result.error.find(words), std::string::npos) << result.error;
  }
  trains("first", {"--resume"});  // the local checkpoint is intact
}

// The run ends before it reads or computes anything.
TEST_F(CheckpointStore, AnUnwritableStoreEndsTheRunImmediately) {
  server_.fault = [&](const Request& request, size_t) {
    return faulty_ && request.method != "GET" && request.method != "HEAD" ? Fault::denied : Fault::none;
  };
  program_.refuses(command("a"), 5, "s3://bucket/runs/run/checkpoints/write-check: ");
  EXPECT_FALSE(fs::exists(run("a")));
  program_.refuses(command("a", {"--resume"}), 5, "write-check");
  faulty_ = false;
  const Result nothing = program_.run(command("a", {"--resume"}));
  EXPECT_EQ(nothing.code, 3);
  EXPECT_NE(nothing.error.find("there is no run to continue"), std::string::npos) << nothing.error;
  program_.refuses(command("a", {"checkpoint.store=https://example.org/x"}), 2, "checkpoint.store");
  program_.refuses(command("a", {"checkpoint.store=" + (program_ / "x/../a/").string()}), 2,
                   "is the same folder as run_dir");
  const Result dry = program_.run(command("a", {"--dry-run", "checkpoint.store=s3://elsewhere/x"}));
  EXPECT_EQ(dry.code, 0) << dry.error;  // a dry run sends no request
  ::setenv("AWS_SECRET_ACCESS_KEY", "wrong", 1);
  program_.refuses(command("a"), 5, "403");
}

// The run continues with its local checkpoints and warns. It ends with an error, and --resume uploads what is missing.
TEST_F(CheckpointStore, AStoreThatFailsDuringARunDoesNotStopIt) {
  server_.fault = [&](const Request& request, size_t) {
    return faulty_ && request.method == "PUT" && request.key.find("/step-") != std::string::npos ? Fault::denied
                                                                                                 : Fault::none;
  };
  const Result result = program_.run(command("a"));
  EXPECT_EQ(result.code, 5);
  EXPECT_NE(result.error.find("the last checkpoint is in the run folder, but was not uploaded to checkpoint.store: "),
            std::string::npos)
      << result.error;
  EXPECT_TRUE(fs::exists(run("a") / "model/model.safetensors"));
  EXPECT_EQ(events("a", "step").size(), 6U);
  EXPECT_TRUE(warned("a", "the checkpoint of step 6 was not uploaded to s3://bucket/runs/run/checkpoints: "));
  EXPECT_TRUE(stored("a").empty());
  faulty_ = false;
  trains("a", {"--resume"});
  EXPECT_EQ(stored("a"), std::vector<int64_t>{6});
  EXPECT_EQ(server_.object("bucket/runs/run/checkpoints/latest"), "step-6\n");
}

// The checkpoints are complete in the store, which is all a run must achieve. The next start cleans up.
TEST_F(CheckpointStore, AFailedCleanUpOfTheStoreIsAWarning) {
  server_.put("bucket/runs/run/checkpoints/step-1/of a dead run", "x");
  server_.fault = [&](const Request& request, size_t) {
    const bool latest = request.method == "PUT" && request.key.ends_with("/latest");
    return faulty_ && (latest || request.args.contains("uploads")) ? Fault::denied : Fault::none;
  };
  trains("a");
  EXPECT_TRUE(
      warned("a", "the checkpoint of step 6 was uploaded to s3://bucket/runs/run/checkpoints, but updating `latest`"));
  EXPECT_EQ(stored("a").back(), 6);
  EXPECT_EQ(server_.object("bucket/runs/run/checkpoints/latest"), "");
  // One failing request of the clean-up does not prevent the others.
  EXPECT_NE(read(run("a") / "log.txt").find("parts of incomplete uploads could not be removed"), std::string::npos);
  EXPECT_EQ(server_.object("bucket/runs/run/checkpoints/step-1/of a dead run"), "");
  faulty_ = false;
  trains("a", {"--resume"});
  EXPECT_EQ(server_.object("bucket/runs/run/checkpoints/latest"), "step-6\n");
}

// This also holds when only the last upload remains to be done.
TEST_F(CheckpointStore, LosingTheFolderLockEndsTheLastUpload) {
  server_.fault = [this, lock = run("a") / "lock"](const Request& request, size_t) {
    if (request.method != "PUT" || !request.key.ends_with("step-6/manifest.json")) return Fault::none;
    fs::remove(lock);
    while (!over_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return Fault::denied;
  };
  Process process(command("a", {"checkpoint.keep=1"}));
  const std::optional<int> code = process.wait(std::chrono::minutes(2));
  EXPECT_EQ(code, 5) << process.result().error;
  EXPECT_NE(process.result().error.find("another process has taken the lock"), std::string::npos)
      << process.result().error;
  EXPECT_EQ(process.result().error.find("the last checkpoint is in the run folder"), std::string::npos);
}

TEST_F(CheckpointStore, SupervisorRestartsWithoutKnowingTheStoresStep) {
  trains("a");
  server_.fault = [](const Request& request, size_t) {
    return request.method == "GET" && request.key.ends_with("step-6/manifest.json") ? Fault::denied : Fault::none;
  };
  const Result result = program_.run(command("b", {"--resume", "--restarts", "1", "--restart-wait", "0"}));
  EXPECT_EQ(result.code, 5);
  EXPECT_NE(result.error.find("restart 1 of 1 from its last checkpoint"), std::string::npos) << result.error;
}

// Training does not wait for the store, and skipped uploads are reported. The checkpoint of step 8 is written after the
// upload of step 6 started.
TEST_F(CheckpointStore, ASlowStoreDoesNotDelayTraining) {
  server_.fault = [this, behind = run("a") / "checkpoints/step-8"](const Request& request, size_t) {
    while (request.key.ends_with("step-2/manifest.json") && !fs::exists(behind) && !over_) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return Fault::none;
  };
  trains("a", {"steps=9"});
  EXPECT_TRUE(warned(
      "a", "the checkpoint of step 4 was not uploaded to s3://bucket/runs/run/checkpoints: that of step 6 was due"));
  const std::vector<int64_t> steps = stored("a");
  EXPECT_EQ(steps.front(), 2);
  EXPECT_EQ(steps.back(), 9);
}

}  // namespace
}  // namespace ingot::e2e
