#include "spec/flops.h"

#include <algorithm>
#include <cmath>

namespace ingot::spec {

namespace {

double attention_forward(const ModelSpec& model, AttentionSquares squares, AttentionCount count) {
  // Two products (scores, values) of 2 length^2 D a head; the causal half by default.
  const double full = 4.0 * static_cast<double>(model.layers * model.heads * model.head_dim) * squares.squared;
  return count == AttentionCount::causal ? full / 2 : full;
}

// Of a mixture of experts a token passes those that were chosen for it.
double used(const ModelSpec& model, const ParamSpec& p) {
  const double elements = static_cast<double>(p.elements());
  if (p.expert < 0) return elements;
  return elements * static_cast<double>(model.experts_per_token) / static_cast<double>(model.experts);
}

}  // namespace

int64_t matmul_parameters(const ModelSpec& model) {
  double linear = 0;
  for (const ParamSpec& p : parameters(model)) {
    if (p.linear) linear += used(model, p);
  }
  const int64_t count = std::llround(linear);
  return model.tied_head ? count + model.vocab * model.hidden : count;
}

double forward_flops(const ModelSpec& model, AttentionSquares squares, AttentionCount count) {
  return 2.0 * static_cast<double>(matmul_parameters(model)) * squares.tokens +
         attention_forward(model, squares, count);
}

double training_flops(const ModelSpec& model, AttentionSquares squares, AttentionCount count) {
  return 3 * forward_flops(model, squares, count);
}

double lora_training_flops(const ModelSpec& model, std::span<const LoraParam> adapters, AttentionSquares squares,
                           AttentionCount count) {
  const std::vector<ParamSpec> table = parameters(model);
  int64_t lowest = model.layers;
  for (const LoraParam& a : adapters) {
    if (table[a.base].layer >= 0) lowest = std::min(lowest, table[a.base].layer);
  }
  double linear = 0;
  for (const ParamSpec& p : table) {
    if (!p.linear) continue;
    const bool backward = p.layer < 0 || p.layer >= lowest;
    linear += (backward ? 4.0 : 2.0) * used(model, p);
  }
  if (model.tied_head) linear += 4.0 * static_cast<double>(model.vocab * model.hidden);
  linear += 6.0 * static_cast<double>(num_parameters(adapters));
  const double layers_backward = static_cast<double>(model.layers - lowest) / static_cast<double>(model.layers);
  return linear * squares.tokens + attention_forward(model, squares, count) * (1 + 2 * layers_backward);
}

double recompute_flops(const ModelSpec& model, AttentionSquares squares, AttentionCount count) {
  const double head = 2.0 * static_cast<double>(model.vocab * model.hidden) * squares.tokens;
  return forward_flops(model, squares, count) - head;
}

}  // namespace ingot::spec
