#include "data/streaming_sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/error.h"

namespace ingot::data {
namespace {

// An order of 46 samples.
StreamingOrder order() {
  StreamingSettings settings;
  settings.shuffle = true;
  settings.block_size = 16;
  settings.canonical_nodes = 2;
  return {{{.shards = {20, 17, 9}}}, settings};
}

StreamingSampler sampler(int64_t global_batch, const StreamingWorld& cluster = {}) {
  return {order(), cluster, 46, global_batch};
}

// The steps are the global batches of each epoch on a cluster, without the incomplete last one.
TEST(StreamingSampler, StepsAreTheGlobalBatchesOfItsEpochs) {
  const StreamingSampler steps = sampler(8);
  EXPECT_EQ(steps.steps_per_epoch(), 5);
  const StreamingWorld cluster{2, 2, 1};
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    StreamingState state = order().begin(cluster);
    state.epoch = epoch;
    const WorkerSamples work = order().work(cluster, 2, state);
    std::set<int64_t> seen;
    for (int64_t k = 0; k < 5; ++k) {
      std::vector<int64_t> theirs, ours = steps.step_samples(5 * epoch + k);
      for (int64_t rank = 0; rank < 4; ++rank) {
        for (int64_t b = 0; b < 2; ++b) theirs.push_back(work.at(rank, k, b));
      }
      std::sort(theirs.begin(), theirs.end());
      std::sort(ours.begin(), ours.end());
      EXPECT_EQ(ours, theirs) << "epoch " << epoch << " batch " << k;
      seen.insert(ours.begin(), ours.end());
    }
    EXPECT_EQ(seen.size(), 40U);
  }
}

// All ranks get equally many samples, so some are repeated and an epoch may have one more batch: 46 samples become 48
// on 8 or 12 ranks. All other batches are the same as on one rank.
TEST(StreamingSampler, LastBatchOfAnEpochIsThatOfTheCluster) {
  const StreamingSampler alone = sampler(24);
  EXPECT_EQ(alone.steps_per_epoch(), 1);
  for (const StreamingWorld cluster : {StreamingWorld{1, 8, 1}, StreamingWorld{2, 6, 1}, StreamingWorld{2, 4, 1}}) {
    const StreamingSampler steps = sampler(24, cluster);
    ASSERT_EQ(steps.steps_per_epoch(), 2);
    EXPECT_EQ(steps.step_samples(0), alone.step_samples(0));
    const WorkerSamples work = order().work(cluster, 24 / cluster.num_ranks(), order().begin(cluster));
    std::multiset<int64_t> theirs;
    for (int64_t rank = 0; rank < cluster.num_ranks(); ++rank) {
      for (int64_t b = 0; b < work.batch; ++b) theirs.insert(work.at(rank, 1, b));
    }
    const std::vector<int64_t> ours = steps.step_samples(1);
    EXPECT_EQ(std::multiset<int64_t>(ours.begin(), ours.end()), theirs);
    EXPECT_EQ(steps.step_samples(2).size(), 24U);  // from the next epoch
    EXPECT_NE(steps.step_samples(2), steps.step_samples(0));
  }
}

TEST(StreamingSampler, StepsMayBeQueriedInAnyOrder) {
  const StreamingSampler forwards = sampler(4), backwards = sampler(4);
  std::vector<std::vector<int64_t>> steps;
  for (int64_t step = 0; step < 30; ++step) steps.push_back(forwards.step_samples(step));
  for (int64_t step = 29; step >= 0; --step) {
    EXPECT_EQ(backwards.step_samples(step), steps[static_cast<size_t>(step)]);
  }
  const StreamingSampler jumping = sampler(4);  // back and forth across an epoch boundary, and over three epochs
  for (int64_t step = 0; step + 23 < 30; ++step) {
    for (const int64_t other : {step, step + 11, step, step + 23, step + 11}) {
      EXPECT_EQ(jumping.step_samples(other), steps[static_cast<size_t>(other)]);
    }
  }
  EXPECT_NE(steps[0], steps[11]);
}

TEST(StreamingSampler, RejectsInvalidSteps) {
  EXPECT_THROW(sampler(47), Error);
  EXPECT_THROW(sampler(0), Error);
  EXPECT_THROW(sampler(9, {2, 2, 1}), Error);
  EXPECT_THROW(sampler(4).step_samples(-1), Error);
}

}  // namespace
}  // namespace ingot::data
