// Buckets of gradients that are joined (ShardSpec::bucket_bytes): which they are, their memory, in which runs their
// weights are gathered, and the bits of steps.
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "base/error.h"
#include "tests/train/layouts.h"
#include "train/initialise.h"

namespace ingot::train {
namespace {

using enum spec::PipelineScheduleName;

constexpr int64_t everything = int64_t{1} << 30;

// The first layer of each bucket of a model with three blocks.
std::vector<int64_t> first_layers(bool tied, const ShardSpec& share) {
  CountingDevice device;
  const spec::ModelSpec spec = small_spec(tied);
  const WeightSet weights = random_weights(device, spec, DType::f32, 1);
  const size_t before = device.allocated();
  const OptimizerState state(device, spec, weights, DType::f32, {}, share);
  const OptimizerStateBytes bytes = optimizer_state_bytes(spec, {}, DType::f32, {}, share);
  EXPECT_EQ(device.allocated() - before, bytes.master + bytes.moments + bytes.gradients);
  std::vector<int64_t> layers;
  size_t next = 0;
  for (const Bucket& bucket : state.buckets()) {
    EXPECT_EQ(bucket.first, next);
    next = bucket.last;
    layers.push_back(bucket.layer);
  }
  EXPECT_EQ(next, state.tensors().size());
  return layers;
}

TEST(Buckets, AreJoinedInTheOrderOfBackwardUntilTheyHaveTheBytes) {
  ShardSpec share{.ranks = 2};
  EXPECT_EQ(first_layers(false, share), (std::vector<int64_t>{-1, 0, 1, 2, INT64_MAX}));
  const std::vector<BucketBytes> each = bucket_bytes(small_spec(), {}, DType::f32, {}, share);
  const auto head = static_cast<int64_t>(each[4].memory), block = static_cast<int64_t>(each[3].memory);
  for (const auto& [bytes, layers] : {std::pair(int64_t{1}, std::vector<int64_t>{-1, 0, 1, 2, INT64_MAX}),
                                      {head, {-1, 0, 1, 2, INT64_MAX}},
                                      {head + 1, {-1, 0, 1, 2}},
                                      {head + block, {-1, 0, 2}},
                                      {head + block + 1, {-1, 1}},
                                      {everything, {-1}}}) {
    share.bucket_bytes = bytes;
    EXPECT_EQ(first_layers(false, share), layers) << bytes;
  }
  // Backward writes to a tied embedding's gradient at both of its ends.
  EXPECT_EQ(first_layers(true, share), (std::vector<int64_t>{-1, 0}));
  for (int zero = 1; zero <= 2; ++zero) {
    for (int rank = 0; rank < 3; ++rank) {
      share = {.rank = rank, .ranks = 3, .zero = zero, .bucket_bytes = everything};
      EXPECT_EQ(first_layers(false, share), std::vector<int64_t>{-1});
    }
  }
}

// Blocks 0 and 2 of four are on the first of two ranks, whose chunks end at different times.
TEST(Buckets, OfDifferentChunksAreNotJoined) {
  spec::ModelSpec spec = small_spec();
  spec.layers = spec::repeated(4, spec.layers.front());
  ShardSpec share{.ranks = 2, .bucket_bytes = everything};
  share.shards = spec::pipeline_shards(interleaved, 2, 2, 0);
  EXPECT_EQ(bucket_bytes(spec, {}, DType::f32, {}, share).size(), 2U);
  share.shards = spec::pipeline_shards(one_f_one_b, 2, 1, 0);
  EXPECT_EQ(bucket_bytes(spec, {}, DType::f32, {}, share).size(), 1U);
}

// Nothing is reduced on one rank; and Muon's matrices are divided as wholes, others by elements.
TEST(Buckets, ThatRanksDoNotDivideAlikeAreNotJoined) {
  EXPECT_EQ(first_layers(false, {.bucket_bytes = everything}), (std::vector<int64_t>{-1, 0, 1, 2, INT64_MAX}));
  const OptimizerDtypes muon{.optimizer = OptimizerName::muon};
  EXPECT_EQ(
      bucket_bytes(small_spec(), {}, DType::f32, muon, {.ranks = 2, .zero = 1, .bucket_bytes = everything}).size(), 3U);
}

TEST(Buckets, ThatAreGatheredWithTheirWeightsAreNotJoined) {
  EXPECT_THROW(divide_parameters(small_spec(), DType::f32, {}, {.ranks = 2, .zero = 3, .bucket_bytes = everything}),
               Error);
}

// The ranks' parts follow each other in a bucket's weights, unless ranks have matrices as wholes.
TEST(Buckets, AreGatheredInAsFewRunsAsTheirPartsAllow) {
  CountingDevice device;
  const spec::ModelSpec spec = small_spec();
  for (const OptimizerName optimizer : {OptimizerName::adamw, OptimizerName::muon}) {
    for (const int zero : {0, 1, 2}) {
      const WeightSet weights = random_weights(device, spec, DType::bf16, 1);
      const OptimizerState state(device, spec, weights, DType::bf16, {.optimizer = optimizer},
                                 {.rank = 1, .ranks = 3, .zero = zero, .bucket_bytes = int64_t{24} << 10});
      for (const Bucket& bucket : state.buckets()) {
        ASSERT_EQ(bucket.runs.empty(), zero == 0);
        if (zero == 0) continue;
        if (optimizer == OptimizerName::adamw) EXPECT_EQ(bucket.runs.size(), 1U);
        EXPECT_LE(bucket.runs.size(), bucket.last - bucket.first);
        size_t next = bucket.first;
        for (const WeightRun& run : bucket.runs) {
          const size_t first = std::exchange(next, next + run.tensors);
          ASSERT_EQ(run.sections.size(), 3U);
          size_t begin = 0;
          for (size_t rank = 0; rank < 3; begin += run.sections[rank++]) {
            for (size_t i = first; i < next; ++i) {
              const TrainedParameter& t = state.tensors()[i];
              const auto* weight = static_cast<const std::byte*>(t.weight.data);
              const auto width = static_cast<int64_t>(size_of(t.weight.dtype));
              const Range& part = t.parts[rank];
              if (part.count() == 0) continue;
              EXPECT_GE(weight + part.begin * width, run.memory + begin);
              EXPECT_LE(weight + part.end * width, run.memory + begin + run.sections[rank]);
            }
          }
        }
        EXPECT_EQ(next, bucket.last);
      }
    }
  }
}

TEST(Buckets, OfWeightsThatDoNotFollowEachOtherAreRefused) {
  CountingDevice device;
  const spec::ModelSpec spec = small_spec();
  WeightSet weights = random_weights(device, spec, DType::f32, 1);
  const ShardSpec share{.ranks = 2, .zero = 1};
  EXPECT_NO_THROW(OptimizerState(device, spec, weights, DType::f32, {}, share));
  Tensor& norm = weights.parameters[1].vector;
  norm.data = norm.as<float>() + 16;
  EXPECT_NO_THROW(OptimizerState(device, spec, weights, DType::f32, {}, {}));
  EXPECT_THROW(OptimizerState(device, spec, weights, DType::f32, {}, share), Error);
}

// In int64, and in fp32, whose sums over ranks are taken element by element.
TEST(Buckets, OfAnySizeHaveTheSameBits) {
  struct Case {
    Layout layout;
    bool adapter = false;
    OptimizerName optimizer = OptimizerName::adamw;
    bool experts = false;
  };
  const std::vector<Case> cases = {
      {{.tp = 1, .stages = 1, .dp = 2, .zero = 0}},
      {{.tp = 1, .stages = 1, .dp = 3, .zero = 1, .visible = false}},
      {{.tp = 1, .stages = 1, .dp = 3, .zero = 2}},
      {{.tp = 1, .stages = 1, .dp = 4, .zero = 2, .visible = false, .shard = 2}},
      {{.tp = 1, .stages = 1, .dp = 2, .zero = 2}, false, OptimizerName::muon},
      {{.tp = 1, .stages = 1, .dp = 4, .zero = 3, .recompute = spec::Recompute::full}, true},
      {{.tp = 1, .stages = 2, .dp = 2, .zero = 1, .schedule = interleaved, .chunks = 2}},
      {{.tp = 2, .stages = 1, .dp = 1, .zero = 2, .cp = 2}},
      {{.tp = 1, .stages = 1, .dp = 4, .zero = 2, .ep = 2}, false, OptimizerName::adamw, true},
  };
  for (const bool tied : {false, true}) {
    for (const bool fixed : {false, true}) {
      SmallRun::Settings settings{.threads = 1};
      settings.types.fixed_point_sums = fixed;
      settings.step.accumulation_units = fixed ? sequences : 0;
      for (const Case& c : cases) {
        settings.spec = small_spec(tied);
        settings.spec.layers = spec::repeated(4, settings.spec.layers.front());
        if (c.experts) {  // in half of the blocks
          settings.spec.family = "mixtral";
          for (size_t i = 0; i < 4; i += 2)
            settings.spec.layers[i].mlp = spec::Experts{4, 2, spec::dense_of(settings.spec.layers[i].mlp)};
        }
        settings.slices = fixed && !c.experts && c.optimizer == OptimizerName::adamw ? 2 : 1;
        settings.types.optimizer = c.optimizer;
        settings.lora.reset();
        if (c.adapter) settings.lora = small_lora();
        Outcome expected;
        settings.bucket_bytes = 0;
        train(expected, settings, c.layout, 2);
        for (const int64_t bytes : {int64_t{16} << 10, everything}) {
          Outcome found;
          settings.bucket_bytes = bytes;
          train(found, settings, c.layout, 2);
          EXPECT_EQ(found.losses, expected.losses);
          EXPECT_EQ(found.norms, expected.norms);
          EXPECT_EQ(found.evaluated, expected.evaluated);
          EXPECT_EQ(found.weights.all, expected.weights.all)
              << "zero " << c.layout.zero << ", " << bytes << " bytes" << (fixed ? ", fixed point" : "");
        }
      }
    }
  }
}

}  // namespace
}  // namespace ingot::train
