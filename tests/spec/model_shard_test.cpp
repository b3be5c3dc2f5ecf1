// Parts of a model: which parameters the ranks of a pipeline hold, and where backward ends.
#include "spec/model_shard.h"

#include <gtest/gtest.h>

#include <map>

#include "base/error.h"
#include "spec/pipeline_schedule.h"
#include "tests/spec/small_model.h"

namespace ingot::spec {
namespace {

using enum PipelineScheduleName;

// Each parameter is on one rank, except for a tied embedding, of which the last stage's rank has a copy.
TEST(PipelineShards, HoldEveryParameterOnce) {
  for (const bool tied : {false, true}) {
    for (const auto& [name, ranks, chunks] : {std::tuple{one_f_one_b, 3, 1}, {interleaved, 2, 3}, {zb_v, 3, 2}}) {
      ModelSpec model = small_model("llama", 7);
      model.tied_head = tied;
      std::map<size_t, int> held, copies;
      for (int rank = 0; rank < ranks; ++rank) {
        const std::vector<ModelShard> shards = pipeline_shards(name, ranks, chunks, rank);
        EXPECT_EQ(std::ssize(shards), chunks);
        EXPECT_EQ(shards.front().stage, rank);
        size_t before = 0;
        for (const HeldParameter& p : held_parameters(model, shards)) {
          EXPECT_TRUE(held.empty() || p.whole >= before);
          before = p.whole;
          ++(p.copy ? copies : held)[p.whole];
        }
      }
      EXPECT_EQ(held.size(), parameters(model).size());
      for (const auto& [parameter, times] : held) EXPECT_EQ(times, 1) << parameter;
      // With zb_v the first rank has the last stage too, and one embedding for both uses.
      EXPECT_EQ(copies.size(), tied && name != zb_v ? 1U : 0U);
    }
  }
}

TEST(PipelineShards, BackwardEndsAtTheLowestTrainableBlock) {
  const ModelSpec model = small_model("llama", 8);
  const auto end_of = [&](int64_t stage, int64_t lowest) {
    return backward_end(model, {.pp = 4, .stage = stage}, lowest);
  };
  const auto expect = [&](int64_t stage, int64_t lowest, int64_t layer, bool input_gradient) {
    EXPECT_EQ(end_of(stage, lowest).lowest_layer, layer) << stage << ", " << lowest;
    EXPECT_EQ(end_of(stage, lowest).input_gradient, input_gradient) << stage << ", " << lowest;
  };
  expect(0, 0, 0, false);
  expect(3, 0, 0, true);
  // Blocks 0 to 2 are frozen: stage 1 has blocks 2 and 3.
  EXPECT_EQ(first_trainable_stage(model, 4, 3), 1);
  expect(0, 3, 2, false);
  expect(1, 3, 1, false);
  expect(2, 3, 0, true);
  // Up to a stage's end.
  EXPECT_EQ(first_trainable_stage(model, 4, 4), 2);
  expect(1, 4, 2, false);
  expect(2, 4, 0, false);
  // Only the head.
  EXPECT_EQ(first_trainable_stage(model, 4, 8), 3);
  expect(2, 8, 2, false);
  expect(3, 8, 2, false);
}

}  // namespace
}  // namespace ingot::spec
