#include "spec/flops.h"

#include <algorithm>
#include <cmath>

namespace ingot::spec {

namespace {

// Attention of the blocks from `first` on: two gemms (scores, values) of 2 D FLOPs per head and pair of tokens.
double attention_forward(const ModelSpec& model, AttentionSquares squares, AttentionCount count, int64_t first = 0) {
  const double pair = 4.0 * static_cast<double>(model.heads * model.head_dim);
  double pairs = 0;
  for (int64_t layer = first; layer < model.layers; ++layer) {
    double seen = squares.squared;
    if (count == AttentionCount::causal) {
      seen /= 2;
      if (model.window_of(layer) > 0)
        seen = std::min(seen, squares.tokens * static_cast<double>(model.window_of(layer)));
    }
    pairs += seen;
  }
  return pair * pairs;
}

// The fraction of tokens that use a parameter: for an expert, experts_per_token / experts.
double share(const ModelSpec& model, const ParamSpec& p) {
  return p.expert < 0 ? 1 : static_cast<double>(model.experts_per_token) / static_cast<double>(model.experts);
}

double used(const ModelSpec& model, const ParamSpec& p) { return static_cast<double>(p.elements()) * share(model, p); }

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

double attention_flops(const ModelSpec& model, AttentionSquares squares, AttentionCount count) {
  return attention_forward(model, squares, count);
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
  for (const LoraParam& a : adapters) {
    linear += 6.0 * static_cast<double>(a.rank * (a.in + a.out)) * share(model, table[a.base]);
  }
  return linear * squares.tokens + attention_forward(model, squares, count) +
         2 * attention_forward(model, squares, count, lowest);
}

double recompute_flops(const ModelSpec& model, AttentionSquares squares, AttentionCount count) {
  const double head = 2.0 * static_cast<double>(model.vocab * model.hidden) * squares.tokens;
  return forward_flops(model, squares, count) - head;
}

}  // namespace ingot::spec
