#include "spec/flops.h"

#include <algorithm>
#include <cmath>

namespace ingot::spec {

namespace {

// Attention of the blocks from `first` on.
double attention_forward(const ModelSpec& model, AttentionSquares squares, AttentionCount count, int64_t first = 0) {
  double flops = 0;
  for (int64_t layer = first; layer < model.num_layers(); ++layer) {
    flops += model.layer(layer).attention.flops(squares, count);
  }
  return flops;
}

double active_elements(const ParamSpec& p) { return static_cast<double>(p.elements()) * p.used; }

}  // namespace

int64_t matmul_parameters(const ModelSpec& model) {
  double linear = 0;
  for (const ParamSpec& p : parameters(model)) {
    if (p.linear) linear += active_elements(p);
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
  int64_t lowest = model.num_layers();
  for (const LoraParam& a : adapters) {
    if (table[a.base].layer >= 0) lowest = std::min(lowest, table[a.base].layer);
  }
  double linear = 0;
  for (const ParamSpec& p : table) {
    if (!p.linear) continue;
    const bool backward = p.layer < 0 || p.layer >= lowest;
    linear += (backward ? 4.0 : 2.0) * active_elements(p);
  }
  if (model.tied_head) linear += 4.0 * static_cast<double>(model.vocab * model.hidden);
  for (const LoraParam& a : adapters) {
    linear += 6.0 * static_cast<double>(a.rank * (a.in + a.out)) * table[a.base].used;
  }
  return linear * squares.tokens + attention_forward(model, squares, count) +
         2 * attention_forward(model, squares, count, lowest);
}

double recompute_flops(const ModelSpec& model, AttentionSquares squares, AttentionCount count) {
  const double head = 2.0 * static_cast<double>(model.vocab * model.hidden) * squares.tokens;
  return forward_flops(model, squares, count) - head;
}

}  // namespace ingot::spec
