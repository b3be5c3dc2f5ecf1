// What the values of a recipe mean for other parts of the program.
#include <string>
#include <vector>

#include "base/cpu_list.h"
#include "base/error.h"
#include "train/recipe.h"
#include "train/recipe_names.h"

namespace ingot::train {

namespace {

template <class Enum>
const char* name_in_recipes(Enum value) {
  for (const auto& [each, name] : EnumNames<Enum>::names) {
    if (each == value) return name;
  }
  return "?";
}

}  // namespace

data::StreamingSettings StreamingRecipe::settings() const {
  data::StreamingSettings settings;
  settings.shuffle = shuffle;
  settings.algorithm = shuffle_algo;
  settings.seed = static_cast<uint64_t>(shuffle_seed);
  settings.block_size = shuffle_block_size;
  settings.partition = partition_algo;
  settings.sampling = sampling_method;
  settings.granularity = sampling_granularity;
  settings.canonical_nodes = num_canonical_nodes;
  settings.epoch_size = epoch_size;
  return settings;
}

const char* name(Precision precision) { return name_in_recipes(precision); }
const char* name(StateType type) { return name_in_recipes(type); }
const char* name(MasterType type) { return name_in_recipes(type); }
const char* name(OptimizerName optimizer) { return name_in_recipes(optimizer); }
const char* name(spec::CpCommType type) { return name_in_recipes(type); }

DType dtype_of(Precision precision) { return precision == Precision::fp32 ? DType::f32 : DType::bf16; }
DType dtype_of(StateType type) {
  switch (type) {
    case StateType::fp32: return DType::f32;
    case StateType::bf16: return DType::bf16;
    case StateType::int8: return DType::u8;
  }
  return DType::f32;
}
DType dtype_of(MasterType type) { return type == MasterType::fp32 ? DType::f32 : DType::bf16; }

int64_t ParallelRecipe::shard_ranks() const {
  const int64_t ranks = shard.value.value_or(replicas());
  if (replicas() % ranks != 0) {
    throw_hint(ErrorKind::usage, "give a number that divides parallel.dp x parallel.cp",
               "parallel.shard {} does not divide the {} ranks with the same part of the model", ranks, replicas());
  }
  return ranks;
}

spec::Layout ParallelRecipe::layout() const {
  const int64_t ranks = shard_ranks();
  if (ranks % ep != 0) {
    throw_hint(ErrorKind::usage, fmt::format("set parallel.ep to a divisor of {}", ranks),
               "parallel.ep {} does not divide the {} ranks {}", ep, ranks,
               shard.is_auto() ? "of parallel.dp x parallel.cp" : "of parallel.shard");
  }
  return {.dp = dp, .cp = cp, .pp = pp, .tp = tp, .shard = ranks, .ep = ep, .order = spec::axis_order(order)};
}

void ParallelRecipe::resolve() {
  using enum spec::PipelineScheduleName;
  if (chunks.is_auto()) chunks.value = pp > 1 && (schedule == interleaved || schedule == zb_v) ? 2 : 1;
}

void OptimizerRecipe::resolve() {
  const bool adamw = name == OptimizerName::adamw || name == OptimizerName::muon;
  if (adamw && !betas) betas = {0.9, 0.95};
  if (adamw && !eps) eps = 1e-8;
  if (name == OptimizerName::lion && !betas) betas = {0.9, 0.99};
  if (name == OptimizerName::muon && !momentum) momentum = 0.95;
  if (name == OptimizerName::sgd && !momentum) momentum = 0.9;
}

OptimizerSettings OptimizerRecipe::settings() const {
  OptimizerSettings settings{.weight_decay = weight_decay, .clip_grad_norm = clip_grad_norm};
  if (betas) settings.beta1 = betas->at(0);
  if (betas) settings.beta2 = betas->at(1);
  if (eps) settings.epsilon = *eps;
  if (momentum) settings.momentum = *momentum;
  return settings;
}

std::vector<int> cpus_of(const std::string& affinity) {
  return affinity == "none" || affinity == "auto" ? std::vector<int>{} : parse_cpu_list(affinity);
}
bool fp8_base(const Recipe& recipe) {
  return recipe.adapter && (recipe.weights == "fp8" || recipe.precision == Precision::fp8);
}

}  // namespace ingot::train
