// A step of a mixture of experts by grouped gemms agrees with one that computes one expert after another.
#include "nn/experts.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "comm/in_process.h"
#include "models/testing/family_specs.h"
#include "ops/lora_bytes.h"
#include "tensor/tolerance.h"
#include "tests/train/small_run.h"

namespace ingot::models {
namespace {

using train::SmallRun;

class OpNames : public ops::OpObserver {
 public:
  void ran(const char* op, std::span<const Tensor>, const ops::OpWork&) override { all.insert(op); }
  std::set<std::string> all;
};

struct ExpertsOutcome {
  double loss;
  std::vector<std::string> names;
  std::vector<std::vector<float>> gradients;
  std::set<std::string> ops;
};

// The third step, so that its dropout depends on the step too.
ExpertsOutcome outcome(const spec::ModelSpec& model, const std::optional<spec::LoraSpec>& lora, bool visible,
                       const comm::Group& tp) {
  SmallRun::Settings settings;
  settings.spec = model;
  settings.lora = lora;
  settings.visible = visible;
  settings.ranks = tp;
  settings.tp = tp.size();
  settings.step.micro = 2;
  SmallRun run(settings);
  if (lora) run.randomise_b(9);
  OpNames names;
  run.step->context().watch = &names;
  const train::StepResult result = run.run(3, 0, run.sequences(5));
  EXPECT_FALSE(result.skipped);
  ExpertsOutcome found{result.loss, {}, train::gradients_of(*run.optimizer_state), names.all};
  for (const train::TrainedParameter& t : run.optimizer_state->tensors()) found.names.push_back(t.name);
  return found;
}

double norm(const std::vector<float>& values) {
  double squares = 0;
  for (const float value : values) squares += static_cast<double>(value) * static_cast<double>(value);
  return std::sqrt(squares);
}

double distance(std::vector<float> a, const std::vector<float>& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] -= b.at(i);
  return norm(a);
}

// Seven gemms a block, forward or backward, as in parity.
int64_t chain_length(const spec::ModelSpec& model) { return spec::longest_row(model) * 7 * model.num_layers(); }

class GroupedExperts : public testing::TestWithParam<FamilyCase> {
 protected:
  // `tp`: ranks that have the model together.
  static void expect_agreement(const spec::ModelSpec& model, const std::optional<spec::LoraSpec>& lora,
                               const comm::Group& tp = {}) {
    const ExpertsOutcome expected = outcome(model, lora, true, tp), found = outcome(model, lora, false, tp);
    EXPECT_FALSE(expected.ops.contains("grouped_linear"));
    EXPECT_TRUE(found.ops.contains("grouped_linear") && found.ops.contains("grouped_linear_backward_input") &&
                found.ops.contains("grouped_weight_gradient"));
    EXPECT_EQ(found.ops.contains("grouped_dropout"), lora && lora->dropout > 0);
    const double bound = tolerance(DType::f32, chain_length(model));
    EXPECT_NEAR(found.loss / expected.loss, 1, bound);
    ASSERT_EQ(found.names, expected.names);
    int64_t of_experts = 0;
    for (size_t i = 0; i < found.gradients.size(); ++i) {
      const double scale = norm(expected.gradients[i]);
      EXPECT_LE(distance(found.gradients[i], expected.gradients[i]), bound * scale) << found.names[i];
      of_experts += scale > 0 && found.names[i].find(".experts.") != std::string::npos;
    }
    EXPECT_GT(of_experts, 0);
  }
};

TEST_P(GroupedExperts, AgreeInFullTraining) { expect_agreement(GetParam().spec, std::nullopt); }

TEST_P(GroupedExperts, AgreeWithAdapters) {
  spec::LoraSpec lora = train::small_lora({"all-linear"});
  expect_agreement(GetParam().spec, lora);
  lora.dropout = 0.3;
  expect_agreement(GetParam().spec, lora);
}

TEST_P(GroupedExperts, AgreeOnTensorParallelRanks) {
  spec::ModelSpec model = GetParam().spec;
  for (spec::LayerSpec& layer : model.layers)
    spec::dense_of(layer.mlp).features = 16;  // dropout: multiples of 4 a rank
  spec::LoraSpec lora = train::small_lora({"all-linear"});
  lora.dropout = 0.3;
  comm::run_in_process({.ranks = 2, .timeout_s = 60}, [&](const comm::Group& tp) {
    expect_agreement(model, std::nullopt, tp);
    expect_agreement(model, lora, tp);
  });
}

// Scratch memory for the low-rank terms of K rows a token is reserved only where they are computed: grouped, in
// training.
TEST_P(GroupedExperts, ReserveLowRankTensorsOnlyWhereTheyAreUsed) {
  const spec::ModelSpec& model = GetParam().spec;
  const spec::Experts& experts = *spec::experts_of(model.layers.front().mlp);
  constexpr int64_t tokens = 512, rank = 4;
  const nn::PassShape grouped{.tokens = tokens, .longest = tokens, .adapter_rank = rank};
  nn::PassShape by_expert = grouped, served = grouped;
  by_expert.host_visible = true;
  served.lora_batch = true;
  nn::PassShape plain = served;
  plain.adapter_rank = 0;
  using nn::Experts;
  EXPECT_LT(Experts::forward_bytes(experts, model.hidden, by_expert),
            Experts::forward_bytes(experts, model.hidden, grouped));
  EXPECT_LT(Experts::backward_bytes(experts, model.hidden, by_expert),
            Experts::backward_bytes(experts, model.hidden, grouped));
  EXPECT_LE(Experts::forward_bytes(experts, model.hidden, served),
            Experts::forward_bytes(experts, model.hidden, plain) + ops::lora_bytes(tokens * experts.per_token, rank));
}

std::vector<FamilyCase> mixtures() {
  std::vector<FamilyCase> cases = family_cases();
  std::erase_if(cases, [](const FamilyCase& c) { return !spec::experts_of(c.spec.layers.front().mlp); });
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Families, GroupedExperts, testing::ValuesIn(mixtures()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace ingot::models
