#include "train/event_log.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "tests/train/run_files.h"

namespace ingot::train {
namespace {

class EventLogTest : public testing::Test {
 protected:
  RunFiles files_;
  std::filesystem::path path_ = files_.path() / "events.jsonl";

  std::vector<nlohmann::json> lines() const {
    std::vector<nlohmann::json> all;
    std::ifstream file(path_);
    for (std::string line; std::getline(file, line);) all.push_back(nlohmann::json::parse(line));
    return all;
  }
  // The events as "type step", in order.
  std::vector<std::string> kinds() const {
    std::vector<std::string> all;
    for (const nlohmann::json& e : lines()) {
      all.push_back(e.at("type").get<std::string>() + " " + (e.contains("step") ? e.at("step").dump() : "-"));
    }
    return all;
  }
  static StepEvent step(int64_t at) {
    StepEvent e;
    e.step = at;
    e.loss = 2.5;
    return e;
  }
};

TEST_F(EventLogTest, EveryEventIsWrittenImmediately) {
  EventLog log(path_, -1);
  log.on_start({"run",
                1,
                10,
                100,
                50,
                "cpu avx2",
                3,
                "bf16",
                {2e12, 1e12, "2026-11-21T05:13:24Z"},
                false,
                2,
                "as the recipe says",
                {},
                {}});
  StepEvent e = step(3);
  e.lr = 1e-4;
  e.grad_norm = 0.5;
  e.tokens = 77;
  e.tokens_per_s = 11;
  e.padding = 0.125;
  e.shares.mfu = 0.25;
  log.on_step(e);
  log.on_eval({3, 1.5, 4.48, 20, 0.1});
  log.on_sample({3, "a \"quoted\"\nprompt", std::string("cut \xC3")});
  log.on_checkpoint({3, "checkpoints/step-3", 1234, 0.5});
  log.on_warning({3, "look"});
  log.on_end({3, "done", 9, 77, 4096, {3e12, 1e12, "2026-11-21T05:14:00Z"}});
  const std::vector<nlohmann::json> all = lines();  // the log is still open
  ASSERT_EQ(all.size(), 7U);
  EXPECT_EQ(all[0].at("type"), "start");
  EXPECT_EQ(all[0].at("version"), 1);
  EXPECT_EQ(all[0].at("peak_tflops"), 2.0);
  EXPECT_EQ(all[0].at("rates_measured"), "2026-11-21T05:13:24Z");
  for (const char* key : {"step", "loss", "lr", "grad_norm", "tokens", "tokens_per_s", "tflops", "mfu",
                          "mfu_full_square", "step_s", "memory_bytes"}) {
    EXPECT_TRUE(all[1].contains(key)) << key;
  }
  EXPECT_EQ(all[1].at("step"), 3);
  EXPECT_EQ(all[1].at("loss"), 2.5);
  EXPECT_EQ(all[1].at("lr"), 1e-4);
  EXPECT_EQ(all[1].at("tokens"), 77);
  EXPECT_EQ(all[1].at("padding"), 0.125);
  EXPECT_EQ(all[1].at("mfu"), 0.25);
  EXPECT_EQ(all[1].at("hfu"), nullptr);  // it is unknown
  EXPECT_EQ(all[2].at("perplexity"), 4.48);
  EXPECT_EQ(all[2].at("tokens"), 20);
  EXPECT_EQ(all[3].at("prompt"), "a \"quoted\"\nprompt");
  EXPECT_EQ(all[4].at("bytes"), 1234);
  EXPECT_EQ(all[5].at("message"), "look");
  EXPECT_EQ(all[6].at("reason"), "done");
  EXPECT_EQ(all[6].at("peak_tflops"), 3.0);
  EXPECT_EQ(all[6].at("rates_measured"), "2026-11-21T05:14:00Z");
}

TEST_F(EventLogTest, TheEndOfAFailedRunHasItsError) {
  EventLog log(path_, -1);
  log.on_end({.step = 3, .reason = "failed", .seconds = 9, .tokens = 77, .error = "rank 1 failed: disk full"});
  const nlohmann::json end = lines().back();
  EXPECT_EQ(end.at("reason"), "failed");
  EXPECT_EQ(end.at("step"), 3);
  EXPECT_EQ(end.at("error"), "rank 1 failed: disk full");
  EXPECT_FALSE(end.contains("peak_memory_bytes"));
}

TEST_F(EventLogTest, ResumingDropsLaterStepsAndAnIncompleteLine) {
  {
    EventLog log(path_, -1);
    log.on_start({.name = "run"});
    log.on_eval({.step = 0});
    for (int64_t s = 1; s <= 4; ++s) log.on_step(step(s));
    log.on_eval({.step = 4});
  }
  std::ofstream(path_, std::ios::app) << R"({"type":"step","step":2,"lo)";
  {
    EventLog log(path_, 2);
    log.on_step(step(3));
  }
  EXPECT_EQ(kinds(), (std::vector<std::string>{"start -", "eval 0", "step 1", "step 2", "step 3"}));
}

TEST_F(EventLogTest, ALineThatIsNotJsonIsDropped) {
  std::ofstream(path_) << "{\"type\":\"step\",\"step\":1}\nno JSON\n[1]\n{\"type\":\"step\",\"step\":2}\n";
  EventLog log(path_, 9);
  EXPECT_EQ(kinds(), (std::vector<std::string>{"step 1", "step 2"}));
}

// A run killed before its first checkpoint starts again: no event of a step is kept, not even of step 0.
TEST_F(EventLogTest, WithoutACheckpointNoStepIsKept) {
  {
    EventLog log(path_, -1);
    log.on_eval({.step = 0});
    log.on_step(step(1));
  }
  const EventLog log(path_, -1);
  EXPECT_TRUE(lines().empty());
}

TEST_F(EventLogTest, AMissingFolderIsNamed) {
  const std::string text =
      refusal(ErrorKind::unavailable, [&] { const EventLog log(files_.path() / "none" / "events.jsonl", 0); });
  EXPECT_NE(text.find("none"), std::string::npos) << text;
}

}  // namespace
}  // namespace ingot::train
