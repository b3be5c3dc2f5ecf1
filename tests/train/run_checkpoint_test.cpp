#include "train/run_checkpoint.h"

#include "tests/train/run_files.h"
#include "tests/train/small_run.h"

namespace ingot::train {
namespace {

const std::string identity = R"({"model":{"hidden":16,"layers":3},"data":"abc","adapter":{"rank":4}})";

SmallRun make_run(DType type = DType::bf16) {
  SmallRun::Settings settings;
  settings.lora = small_lora();
  settings.weights = type;
  settings.step.activation = type;
  return SmallRun(settings);
}

TEST(RunCheckpoint, ResumesBitForBit) {
  const RunFiles files;
  SmallRun whole = make_run();
  const std::vector<data::PackedSequence> batch = whole.sequences(2);
  std::vector<data::PackedSequence> nothing = batch;  // without loss tokens: the step is skipped
  for (data::PackedSequence& sequence : nothing) {
    sequence.targets.assign(sequence.targets.size(), -1);
    sequence.loss_tokens = 0;
  }
  for (int64_t step = 1; step <= 3; ++step) whole.run(step, 1e-2, step == 2 ? nothing : batch);
  const uint64_t bytes =
      write_run_checkpoint(files.path(), {3, 144}, identity, *whole.optimizer_state, whole.device, 2);
  EXPECT_GT(bytes, static_cast<uint64_t>(whole.optimizer_state->num_parameters()) * 12);
  const StepResult expected = whole.run(4, 1e-2, batch);

  SmallRun again = make_run();
  const std::optional<RunProgress> progress =
      read_run_checkpoint(files.path(), identity, *again.optimizer_state, again.device);
  ASSERT_TRUE(progress);
  EXPECT_EQ(progress->step, 3);
  EXPECT_EQ(progress->tokens, 144);
  EXPECT_EQ(again.optimizer_state->updates(), 2);
  again.optimizer_state->refresh_weights(again.step->context());
  EXPECT_EQ(again.run(4, 1e-2, batch).loss, expected.loss);
  EXPECT_EQ(state_of(*again.optimizer_state), state_of(*whole.optimizer_state));
}

// A background checkpoint contains the state at its start, whatever later steps do.
TEST(RunCheckpoint, InTheBackgroundContainsTheStateAtItsStart) {
  const RunFiles files;
  SmallRun run = make_run();
  const std::vector<data::PackedSequence> batch = run.sequences(2);
  run.run(1, 1e-2, batch);
  write_run_checkpoint(files.path() / "here", {1, 48}, identity, *run.optimizer_state, run.device, 2);
  BackgroundCheckpoint background;
  EXPECT_FALSE(background.is_writing());
  EXPECT_FALSE(background.advance());
  background.reserve(*run.optimizer_state, run.step->context());
  EXPECT_FALSE(background.is_writing());
  background.begin(files.path() / "there", {1, 48}, identity, *run.optimizer_state, run.step->context(), 2);
  EXPECT_TRUE(background.is_writing());
  refusal(ErrorKind::internal, [&] {
    background.begin(files.path() / "there", {1, 48}, identity, *run.optimizer_state, run.step->context(), 2);
  });
  run.run(2, 1e-2, batch);
  const BackgroundCheckpoint::Written written = background.wait();
  EXPECT_EQ(written.step, 1);
  EXPECT_FALSE(background.is_writing());
  uint64_t bytes = 0;
  for (const auto& file : std::filesystem::directory_iterator(files.path() / "here" / "step-1")) {
    EXPECT_EQ(read_file(file.path()), read_file(files.path() / "there" / "step-1" / file.path().filename()));
    bytes += file.file_size();
  }
  EXPECT_EQ(written.bytes, bytes);
}

TEST(RunCheckpoint, BackgroundErrorsAreThrownByTheWait) {
  const RunFiles files;
  SmallRun run = make_run();
  write_file(files.path() / "taken", "a file where the folder should be");
  BackgroundCheckpoint background;
  background.begin(files.path() / "taken", {1, 48}, identity, *run.optimizer_state, run.step->context(), 2);
  const std::string text = refusal(ErrorKind::unavailable, [&] { background.wait(); });
  EXPECT_NE(text.find("taken"), std::string::npos) << text;
  EXPECT_FALSE(background.is_writing());  // another checkpoint may be started
}

TEST(RunCheckpoint, MayBeMissingAndTheNewestAreKept) {
  const RunFiles files;
  SmallRun run = make_run();
  EXPECT_FALSE(read_run_checkpoint(files.path() / "none", identity, *run.optimizer_state, run.device));
  for (int64_t step = 1; step <= 4; ++step) {
    write_run_checkpoint(files.path(), {step, step * 10}, identity, *run.optimizer_state, run.device, 2);
  }
  EXPECT_FALSE(std::filesystem::exists(files.path() / "step-2"));
  EXPECT_TRUE(std::filesystem::exists(files.path() / "step-3"));
  EXPECT_EQ(read_run_checkpoint(files.path(), identity, *run.optimizer_state, run.device)->step, 4);
}

TEST(RunCheckpoint, AnotherRunIsRefusedWithTheFirstDifference) {
  const RunFiles files;
  SmallRun run = make_run();
  write_run_checkpoint(files.path(), {1, 10}, identity, *run.optimizer_state, run.device, 2);
  const std::vector<std::vector<float>> before = state_of(*run.optimizer_state);
  struct Case {
    const char* now;
    std::vector<const char*> words;
  };
  for (const Case& c :
       {Case{R"({"model":{"hidden":16,"layers":2},"data":"abc","adapter":{"rank":4}})", {"model.layers", "3", "2"}},
        Case{R"({"model":{"hidden":16,"layers":3},"data":"xyz","adapter":{"rank":4}})", {"data", "abc", "xyz"}},
        Case{R"({"model":{"hidden":16,"layers":3},"data":"abc"})", {"adapter", "nothing"}},
        Case{R"({"model":{"hidden":16,"layers":3},"data":"abc","adapter":{"rank":4},"more":1})", {"more", "nothing"}},
        Case{R"({"model":{"hidden":16,"layers":3},"data":"abc","adapter":{"rank":4},"optimizer":"muon"})",
             {"optimizer.name was \"adamw\" and is now \"muon\""}}}) {
    const std::string text =
        refusal(ErrorKind::usage, [&] { read_run_checkpoint(files.path(), c.now, *run.optimizer_state, run.device); });
    for (const char* word : c.words) EXPECT_NE(text.find(word), std::string::npos) << word << " in " << text;
  }
  EXPECT_EQ(state_of(*run.optimizer_state), before);
}

TEST(RunCheckpoint, OtherTypesAreRefused) {
  const RunFiles files;
  SmallRun run = make_run();
  write_run_checkpoint(files.path(), {1, 10}, identity, *run.optimizer_state, run.device, 2);
  SmallRun::Settings settings;
  settings.lora = small_lora();
  settings.types.state = DType::bf16;
  SmallRun other(settings);
  refusal(ErrorKind::corrupt,
          [&] { read_run_checkpoint(files.path(), identity, *other.optimizer_state, other.device); });
}

}  // namespace
}  // namespace ingot::train
