#include "data/loader.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "data/dataset.h"
#include "data/sampler.h"
#include "tests/data/byte_tokenizer.h"
#include "tests/data/temp_folder.h"

namespace ingot::data {
namespace {

class LoaderTest : public testing::Test {
 protected:
  LoaderTest() {
    std::string lines;
    for (int i = 0; i < 23; ++i) lines += "{\"text\": \"document number " + std::to_string(i) + "\"}\n";
    const auto tokenizer = byte_tokenizer();
    ThreadPool pool(1);
    const std::vector<Source> sources = {{folder_.file("a.jsonl", lines)}};
    dataset_ = Dataset::build(sources, *tokenizer, nullptr, {.packing = {.sequence_length = 24}}, pool);
  }

  TempFolder folder_;
  std::optional<Dataset> dataset_;
};

TEST_F(LoaderTest, DeliversStepsInOrderFromAnyStart) {
  const Sampler sampler(dataset_->num_sequences(), 3, 4);
  for (const int64_t start : {0, 5, 100}) {
    Loader loader(*dataset_, sampler, start);
    for (int64_t step = start; step < start + 20; ++step) {
      const HostBatch batch = loader.next();
      EXPECT_EQ(batch.step, step);
      EXPECT_EQ(batch.samples, sampler.step_samples(step));
      ASSERT_EQ(batch.sequences.size(), 4U);
      int64_t loss_tokens = 0;
      for (size_t i = 0; i < 4; ++i) {
        const PackedSequence expected = dataset_->get(batch.samples[i]);
        EXPECT_EQ(batch.sequences[i].ids, expected.ids);
        EXPECT_EQ(batch.sequences[i].targets, expected.targets);
        EXPECT_EQ(batch.sequences[i].offsets, expected.offsets);
        loss_tokens += expected.loss_tokens;
      }
      EXPECT_EQ(batch.loss_tokens, loss_tokens);
    }
  }
}

TEST_F(LoaderTest, CanBeDestroyedAtAnyTime) {
  const Sampler sampler(dataset_->num_sequences(), 3, 4);
  for (int taken = 0; taken < 4; ++taken) {
    for (int repeat = 0; repeat < 20; ++repeat) {
      Loader loader(*dataset_, sampler, 0);
      for (int i = 0; i < taken; ++i) EXPECT_EQ(loader.next().step, i);
    }
  }
}

TEST_F(LoaderTest, ErrorsReachTheConsumerEveryTime) {
  const Sampler sampler(dataset_->num_sequences(), 3, 4);
  Loader loader(*dataset_, sampler, -2);
  for (int i = 0; i < 2; ++i) {
    expect_error(error_of([&] { loader.next(); }), ErrorKind::usage, {"step -2"});
  }
}

TEST_F(LoaderTest, RejectsAnOrderOfOtherData) {
  const Sampler other(dataset_->num_sequences() + 1, 3, 4);
  expect_error(error_of([&] { Loader(*dataset_, other, 0); }), ErrorKind::usage, {"order", "sequences"});
}

}  // namespace
}  // namespace ingot::data
