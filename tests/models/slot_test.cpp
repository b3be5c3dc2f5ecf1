// Several micro-batches in flight, each in its slot: in any order each gives the losses and gradients that it gives
// alone.
#include "models/slot.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "backend/cpu/cpu_device.h"
#include "base/philox.h"
#include "base/thread_pool.h"
#include "models/model.h"
#include "models/testing/family_specs.h"
#include "nn/next_token_loss.h"
#include "ops/registry.h"
#include "tests/counting_device.h"
#include "tests/models/sums.h"
#include "train/initialise.h"

namespace ingot::models {
namespace {

constexpr int64_t tokens = 16;
using Values = std::vector<float>;

// A micro-batch, its slot, and its results.
struct MicroBatch {
  std::vector<int32_t> ids, positions, offsets{0, 7, static_cast<int32_t>(tokens)}, targets;
  Values losses = Values(tokens);
  std::vector<Values> gradients;
  std::unique_ptr<Arena> saved;
  std::unique_ptr<Slot> slot;
  std::unique_ptr<Sums> sums;
};

// All families, and a model whose layers save different tensors: with clamped and unclamped projections.
std::vector<FamilyCase> models() {
  std::vector<FamilyCase> all = family_cases();
  for (const FamilyCase& c : family_cases()) {
    if (c.spec.layers.front().attention.clip_qkv == 0) continue;
    all.push_back(c);
    all.back().name += "_clipped_once";
    for (size_t layer = 1; layer < c.spec.layers.size(); ++layer) all.back().spec.layers[layer].attention.clip_qkv = 0;
    break;
  }
  return all;
}

class Slots : public testing::TestWithParam<FamilyCase> {
 protected:
  Slots() : spec_(GetParam().spec), weights_(train::random_weights(device_, spec_, DType::f32, 5)) {
    cpu::register_ops(registry_);
    const PassShape shape{.tokens = tokens, .longest = tokens};
    const PassBytes bytes = pass_bytes(spec_, shape);
    const size_t loss = bytes.loss_gradient + nn::NextTokenLoss::bytes(spec_, shape, true);
    scratch_ = Arena(device_, std::max({bytes.forward, loss, bytes.backward}), "scratch");
    model_ = make_model(spec_, weights_, device_);
    std::vector<int> trainable(weights_.parameters.size());
    for (size_t i = 0; i < trainable.size(); ++i) trainable[i] = static_cast<int>(i);
    model_->set_trainable(trainable, 0);
  }

  MicroBatch micro_batch(uint64_t seed, spec::Recompute recompute) {
    MicroBatch batch;
    RandomStream random(seed, 0);
    for (int32_t t = 0; t < tokens; ++t) {
      batch.ids.push_back(static_cast<int32_t>(random.below(static_cast<uint64_t>(spec_.vocab))));
      batch.positions.push_back(t < 7 ? t : t - 7);
      batch.targets.push_back(t % 5 == 3 ? -1 : static_cast<int32_t>(random.below(static_cast<uint64_t>(spec_.vocab))));
    }
    std::vector<Tensor> sums;
    for (const spec::ParamSpec& p : spec::parameters(spec_)) {
      batch.gradients.emplace_back(static_cast<size_t>(p.elements()));
      sums.push_back({batch.gradients.back().data(), DType::f32, Shape(p.shape), &device_});
    }
    batch.sums = std::make_unique<Sums>(std::move(sums));
    const spec::SavedBytes bytes = spec::saved_bytes(spec_, recompute, 4, tokens, spec_.num_layers());
    batch.saved = std::make_unique<Arena>(device_, bytes.own, "saved");
    // One for all, of the size that the last one needs.
    if (shared_.capacity() != bytes.shared) shared_ = Arena(device_, bytes.shared, "shared");
    batch.slot = std::make_unique<Slot>(*batch.saved, shared_);
    return batch;
  }

  enum class Part { forward, loss, backward };
  // Without `recompute` the pass is not a training pass.
  void run(MicroBatch& batch, Part part, std::optional<spec::Recompute> recompute) {
    const auto view = [&](std::vector<int32_t>& numbers) {
      return Tensor{numbers.data(), DType::i32, Shape{std::ssize(numbers)}, &device_};
    };
    const nn::TokenBatch flat{view(batch.ids), view(batch.positions), view(batch.offsets)};
    ops::Context context{device_, registry_, scratch_, &threads_};
    nn::Training training{.accumulator = *batch.sums,
                          .accumulation_offsets = {0, 7, tokens},
                          .recompute = recompute.value_or(spec::Recompute::none)};
    nn::Pass pass{.ops = context, .batch = flat, .training = recompute ? &training : nullptr};
    switch (part) {
      case Part::forward: return model_->forward(pass, *batch.slot);
      case Part::loss:
        return model_->loss(
            pass, *batch.slot,
            nn::NextTokenLoss({batch.losses.data(), DType::f32, Shape{tokens}, &device_}, view(batch.targets)));
      case Part::backward: model_->backward(pass, *batch.slot); return batch.slot->clear();
    }
  }

  CountingDevice device_;
  ops::Registry registry_;
  ThreadPool threads_{1};
  spec::ModelSpec spec_;
  WeightSet weights_;
  Arena scratch_, shared_;
  std::unique_ptr<Model> model_;
};

TEST_P(Slots, MicroBatchesInFlightAreIndependent) {
  for (const spec::Recompute recompute : {spec::Recompute::none, spec::Recompute::selective, spec::Recompute::full}) {
    MicroBatch alone[2] = {micro_batch(1, recompute), micro_batch(2, recompute)};
    for (MicroBatch& batch : alone) {
      for (const Part part : {Part::forward, Part::loss, Part::backward}) run(batch, part, recompute);
    }
    MicroBatch together[2] = {micro_batch(1, recompute), micro_batch(2, recompute)};
    run(together[0], Part::forward, recompute);
    run(together[1], Part::forward, recompute);
    run(together[0], Part::loss, recompute);
    run(together[1], Part::loss, recompute);
    run(together[1], Part::backward, recompute);
    run(together[0], Part::backward, recompute);
    EXPECT_NE(alone[0].losses, alone[1].losses);
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(together[i].losses, alone[i].losses) << i;
      for (size_t p = 0; p < alone[i].gradients.size(); ++p) {
        EXPECT_EQ(together[i].gradients[p], alone[i].gradients[p]) << spec::parameters(spec_)[p].name;
      }
    }
  }
}

TEST_P(Slots, LossesOfInferenceAreTheSame) {
  MicroBatch trained = micro_batch(1, spec::Recompute::none);
  for (const Part part : {Part::forward, Part::loss, Part::backward}) run(trained, part, spec::Recompute::none);
  MicroBatch evaluated = micro_batch(1, spec::Recompute::none);
  run(evaluated, Part::forward, {});
  run(evaluated, Part::loss, {});
  EXPECT_EQ(evaluated.losses, trained.losses);
}

INSTANTIATE_TEST_SUITE_P(Families, Slots, testing::ValuesIn(models()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace ingot::models
