// LoRA (Hu et al. 2021, arXiv 2106.09685) as data: target layers, rank and scaling factor.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "spec/model.h"

namespace ingot::spec {

struct LoraSpec {
  int64_t rank = 8;
  double alpha = 8;
  double dropout = 0;
  bool rslora = false;  // alpha / sqrt(rank) (Kalajdzievski 2023, arXiv 2312.03732) instead of alpha / rank
  std::vector<std::string> targets;  // as PEFT's target_modules: "q_proj", a longer suffix, or "all-linear"
  bool operator==(const LoraSpec&) const = default;
  double factor() const;  // the scaling factor of B A x
};

// One adapted layer: A [rank, in], B [out, rank].
struct LoraParam {
  std::string module;  // "model.layers.0.self_attn.q_proj"
  size_t base = 0;     // index of the base weight in parameters(model)
  int64_t rank = 0;
  int64_t in = 0;
  int64_t out = 0;
};

// The layers that `lora.targets` names, in parameter order. ErrorKind::usage, naming the target and the valid ones, for
// a target that matches nothing or matches a layer that is not linear, and for a rank below 1 or above min(in, out).
std::vector<LoraParam> lora_parameters(const ModelSpec& model, const LoraSpec& lora);

int64_t num_parameters(std::span<const LoraParam> parameters);

// The lowest block with an adapter: the blocks below it are frozen. The number of blocks where only the head has one.
int64_t lowest_adapted_layer(const ModelSpec& model, const LoraSpec& lora);

}  // namespace ingot::spec
