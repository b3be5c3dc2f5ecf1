#include "train/trained.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/train/small_run.h"
#include "train/initialise.h"

namespace ingot::train {
namespace {

Trained lora(Device& device, std::vector<std::string> targets, uint64_t seed) {
  return Trained(device, small_spec(), small_lora(std::move(targets)), DType::f32, {}, seed);
}

TEST(Trained, AIsUniformInItsBoundAndBZero) {
  CountingDevice device;
  const Trained trained = lora(device, {"all-linear"}, 1);
  const Trained other = lora(device, {"all-linear"}, 2);
  double highest = 0;
  double sum = 0;
  int64_t count = 0;
  for (size_t i = 0; i < trained.tensors().size(); ++i) {
    const TrainedTensor& t = trained.tensors()[i];
    const std::vector<float> values = floats(t.master);
    if (t.name.ends_with("lora_B.weight")) {
      for (float value : values) EXPECT_EQ(value, 0.0F) << t.name;
      continue;
    }
    ASSERT_TRUE(t.name.ends_with("lora_A.weight")) << t.name;
    EXPECT_NE(values, floats(other.tensors()[i].master)) << "the seed makes no difference";
    const double bound = 1 / std::sqrt(static_cast<double>(t.shape[1]));
    for (float value : values) {
      EXPECT_LE(std::abs(value), bound) << t.name;
      highest = std::max(highest, std::abs(value) / bound);
      sum += value / bound;
      ++count;
    }
  }
  EXPECT_GT(highest, 0.99);  // of over a thousand uniform numbers
  // Six standard deviations of the mean of uniform numbers in [-1, 1].
  EXPECT_LT(std::abs(sum / static_cast<double>(count)), 6 / std::sqrt(3.0 * static_cast<double>(count)));
}

TEST(Trained, BytesAreWhatIsAllocated) {
  for (const bool tied : {false, true}) {
    for (const DType activation : {DType::f32, DType::bf16}) {
      for (const DType state : {DType::f32, DType::bf16}) {
        for (const DType master : {DType::f32, DType::bf16}) {
          for (const bool adapter : {false, true}) {
            CountingDevice device;
            const spec::ModelSpec spec = small_spec(tied);
            const WeightSet weights = random_weights(device, spec, activation, 1);
            const size_t before = device.allocated();
            std::optional<spec::LoraSpec> lora;
            if (adapter) lora = small_lora();
            const OptimizerTypes types{state, master};
            const Trained trained = lora ? Trained(device, spec, *lora, activation, types, 1)
                                         : Trained(device, spec, weights, activation, types);
            const TrainedBytes bytes = trained_bytes(spec, lora, activation, types);
            EXPECT_EQ(device.allocated() - before, bytes.master + bytes.moments + bytes.gradients + bytes.adapter)
                << (tied ? "tied " : "") << name(activation) << " state " << name(state) << " master " << name(master)
                << (adapter ? " LoRA" : " full");
            EXPECT_EQ(trained.num_parameters(),
                      adapter ? spec::num_parameters(spec::lora_parameters(spec, *lora)) : spec::num_parameters(spec));
          }
        }
      }
    }
  }
}

TEST(Trained, LowestLayerIsTheLowestAdapted) {
  CountingDevice device;
  EXPECT_EQ(lora(device, {"all-linear"}, 1).lowest_layer(), 0);
  EXPECT_EQ(lora(device, {"layers.1.mlp.down_proj", "layers.2.self_attn.q_proj"}, 1).lowest_layer(), 1);
  EXPECT_EQ(lora(device, {"layers.2.self_attn.q_proj", "lm_head"}, 1).lowest_layer(), 2);
  EXPECT_EQ(lora(device, {"lm_head"}, 1).lowest_layer(), 3);
}

}  // namespace
}  // namespace ingot::train
