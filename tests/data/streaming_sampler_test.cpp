#include "data/streaming_sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/error.h"

namespace ingot::data {
namespace {

StreamingSampler sampler(int64_t global_batch) {
  StreamingSettings settings;
  settings.shuffle = true;
  settings.block_size = 16;
  settings.canonical_nodes = 2;
  return {StreamingOrder({{.shards = {20, 17, 9}}}, settings), 46, global_batch};
}

// Steps are the global batches of each epoch, as the ranks of a cluster have them, without the incomplete one.
TEST(StreamingSampler, StepsAreTheGlobalBatchesOfItsEpochs) {
  const StreamingSampler steps = sampler(8);
  EXPECT_EQ(steps.steps_per_epoch(), 5);
  StreamingSettings settings;
  settings.shuffle = true;
  settings.block_size = 16;
  settings.canonical_nodes = 2;
  const StreamingOrder order({{.shards = {20, 17, 9}}}, settings);
  const StreamingWorld cluster{2, 2, 1};
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    StreamingState state = order.begin(cluster);
    state.epoch = epoch;
    const WorkerSamples work = order.work(cluster, 2, state);
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

TEST(StreamingSampler, AnyStepAtAnyTime) {
  const StreamingSampler forwards = sampler(4), backwards = sampler(4);
  std::vector<std::vector<int64_t>> steps;
  for (int64_t step = 0; step < 30; ++step) steps.push_back(forwards.step_samples(step));
  for (int64_t step = 29; step >= 0; --step) {
    EXPECT_EQ(backwards.step_samples(step), steps[static_cast<size_t>(step)]);
  }
  EXPECT_NE(steps[0], steps[11]);
}

TEST(StreamingSampler, RefusesWhatIsNoStep) {
  EXPECT_THROW(sampler(47), Error);
  EXPECT_THROW(sampler(0), Error);
  EXPECT_THROW(sampler(4).step_samples(-1), Error);
}

}  // namespace
}  // namespace ingot::data
