// A model partitioned over tensor-parallel ranks (spec/model_shard.h) gives the losses and gradients of the whole
// model, for every family that can be partitioned. Pipeline stages: tests/train/pipeline_test.cpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "backend/cpu/cpu_device.h"
#include "base/error.h"
#include "base/philox.h"
#include "base/thread_pool.h"
#include "comm/in_process.h"
#include "models/model.h"
#include "models/testing/family_specs.h"
#include "nn/next_token_loss.h"
#include "ops/registry.h"
#include "tensor/tolerance.h"
#include "tests/counting_device.h"
#include "tests/models/held_weights.h"

namespace ingot::models {
namespace {

constexpr int64_t part_tokens = 24;

struct Batch {
  std::vector<int32_t> ids, positions, offsets, targets;
};

Batch batch_of(const spec::ModelSpec& spec) {
  Batch batch;
  RandomStream random(3, 0);
  batch.offsets = {0, 9, static_cast<int32_t>(part_tokens)};
  for (int32_t t = 0; t < part_tokens; ++t) {
    batch.ids.push_back(static_cast<int32_t>(random.below(static_cast<uint64_t>(spec.vocab))));
    batch.positions.push_back(t < 9 ? t : t - 9);
    batch.targets.push_back(t % 5 == 3 ? -1 : static_cast<int32_t>(random.below(static_cast<uint64_t>(spec.vocab))));
  }
  return batch;
}

struct PartsOutcome {
  Values losses;
  std::map<size_t, Values> gradients;  // by index in the whole parameter table, as the part stores them
};

// One forward and backward pass of a part, with arenas of exactly the predicted sizes.
PartsOutcome run(const spec::ModelSpec& spec, const spec::ModelShard& part, const std::vector<Values>& whole,
                 const comm::Group& tp, spec::Recompute recompute) {
  CountingDevice device;
  ops::Registry registry;
  cpu::register_ops(registry);
  ThreadPool threads(1);
  HeldWeights own(device, spec, part, whole);
  const spec::ModelSpec sizes = spec::sizes_of(spec, part);
  const std::unique_ptr<Model> model = make_model(spec, own.weights, device, part);
  model->set_trainable(own.trainable, 0);
  const PassShape shape{.tokens = part_tokens, .longest = part_tokens, .tp = part.tp};
  const PassBytes bytes = pass_bytes(sizes, shape);
  const size_t head = bytes.loss_gradient + nn::NextTokenLoss::bytes(sizes, shape, true);
  Arena scratch(device, std::max({bytes.forward, head, bytes.backward}), "scratch");
  const spec::SavedBytes kept = spec::saved_bytes(sizes, recompute, 4, part_tokens, sizes.num_layers());
  Arena saved(device, kept.own, "saved"), shared(device, kept.shared, "shared");
  Batch batch = batch_of(spec);
  const auto view = [&](std::vector<int32_t>& numbers) {
    return Tensor{numbers.data(), DType::i32, Shape{static_cast<int64_t>(numbers.size())}, &device};
  };
  const nn::TokenBatch tokens_of{view(batch.ids), view(batch.positions), view(batch.offsets)};
  ops::Context context{device, registry, scratch, &threads};
  Sums accumulator(own.sums);
  nn::Training training{
      .accumulator = accumulator, .accumulation_offsets = {0, 9, part_tokens}, .recompute = recompute};
  nn::Pass pass{.ops = context, .batch = tokens_of, .training = &training, .tp = {tp}};
  PartsOutcome outcome;
  outcome.losses.resize(part_tokens);
  Slot slot(saved, shared);
  const auto compute = [&](Values& losses) {
    model->forward(pass, slot);
    model->loss(pass, slot,
                nn::NextTokenLoss({losses.data(), DType::f32, Shape{part_tokens}, &device}, view(batch.targets)));
    if (pass.training) model->backward(pass, slot);
    slot.clear();
  };
  compute(outcome.losses);
  for (size_t i = 0; i < own.held.size(); ++i) {
    const spec::HeldParameter& p = own.held[i];
    EXPECT_TRUE(accumulator.has(static_cast<int>(i))) << p.held.name;
    sum_over_sharers(p, tp, own.gradients[i]);
    outcome.gradients[p.whole] = own.gradients[i];
  }

  // The losses without training are the same.
  pass.training = nullptr;
  Values again(part_tokens);
  compute(again);
  EXPECT_EQ(again, outcome.losses);
  return outcome;
}

double largest(const Values& values) {
  double most = 0;
  for (const float value : values) most = std::max(most, std::abs(static_cast<double>(value)));
  return most;
}

void compare_with_whole(const spec::ModelSpec& spec, int tp, spec::Recompute recompute) {
  const std::vector<Values> weights = whole_weights(spec);
  const PartsOutcome one = run(spec, {}, weights, {}, recompute);
  const std::vector<spec::ParamSpec> table = spec::parameters(spec);
  // The rounding error of sums of this many terms propagates through all blocks, forward and backward.
  const int64_t terms = std::max(spec::longest_row(spec), part_tokens) * 7 * spec.num_layers();
  const double share = tolerance(DType::f32, terms);
  comm::run_in_process({.ranks = tp, .timeout_s = 60}, [&](const comm::Group& ranks) {
    const spec::ModelShard part{.tp = tp, .tp_rank = ranks.rank()};
    const PartsOutcome outcome = run(spec, part, weights, ranks, recompute);
    for (size_t t = 0; t < outcome.losses.size(); ++t) {
      EXPECT_NEAR(outcome.losses[t], one.losses[t], share * largest(one.losses)) << t;
    }
    for (const spec::HeldParameter& p : spec::held_parameters(spec, part)) {
      const Values& expected = one.gradients.at(p.whole);
      const Values& found = outcome.gradients.at(p.whole);
      const double scale = largest(expected);
      for_elements(p, table[p.whole], [&](size_t from, size_t to) {
        ASSERT_NEAR(found[to], expected[from], share * scale) << p.held.name << " " << from;
      });
    }
  });
}

std::vector<FamilyCase> cases(const spec::ModelShard& part) {
  std::vector<FamilyCase> list = family_cases();
  std::erase_if(list, [&](const FamilyCase& c) { return !can_be_cut(c.spec, part); });
  return list;
}

class TensorParallel : public testing::TestWithParam<FamilyCase> {};

TEST_P(TensorParallel, EqualsOneDevice) {
  compare_with_whole(GetParam().spec, 2, spec::Recompute::none);
  if (can_be_cut(GetParam().spec, {.tp = 4})) compare_with_whole(GetParam().spec, 4, spec::Recompute::none);
}
TEST_P(TensorParallel, EqualsOneDeviceWhenRecomputing) {
  compare_with_whole(GetParam().spec, 2, spec::Recompute::full);
}

INSTANTIATE_TEST_SUITE_P(Families, TensorParallel, testing::ValuesIn(cases({.tp = 2})),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace ingot::models
