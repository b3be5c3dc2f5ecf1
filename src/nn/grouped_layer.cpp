#include "nn/grouped_layer.h"

#include <algorithm>

#include "nn/dropout.h"
#include "ops/elementwise.h"
#include "ops/grouped_linear.h"
#include "ops/lora.h"
#include "ops/lora_bytes.h"

namespace ingot::nn {

// The adapter's weights for the layer, by expert.
struct GroupedLayer::LowRank {
  const Adapter* adapter = nullptr;
  std::vector<Weight> a, b;
  std::vector<int> a_trainable, b_trainable;

  explicit operator bool() const { return !a.empty(); }

  LowRank(const GroupedLayer& layer, const Pass& pass) {
    if (pass.adapters.empty() || !pass.adapters.front().adapter) return;
    adapter = pass.adapters.front().adapter;
    for (size_t e = 0; e < layer.mlps.size(); ++e) {
      const LoraWeights& own = adapter->layers[layer.of(e).parameter];
      if (!own.a) continue;
      a.push_back(weight_of(own.a));
      b.push_back(weight_of(own.b));
      a_trainable.push_back(own.a_trainable);
      b_trainable.push_back(own.b_trainable);
    }
  }

  // Whether all experts are adapted alike, or none is.
  bool is_regular(size_t experts) const {
    return a.empty() || (a.size() == experts &&
                         std::ranges::all_of(a, [&](const Weight& other) { return other.out == a.front().out; }));
  }
  int64_t rank() const { return a.front().out; }
};

namespace {

// From one expert's parameter to the next.
int64_t parameter_step(const GroupedLayer& layer) {
  if (layer.mlps.size() < 2) return 1;
  return static_cast<int64_t>(layer.of(1).parameter) - static_cast<int64_t>(layer.of(0).parameter);
}

// out = in with the experts' dropout.
void drop(Pass& pass, const ExpertGroups& groups, const GroupedLayer& layer, const Adapter& adapter, const Tensor& out,
          const Tensor& in) {
  ops::DropoutAttributes attributes = dropout_attributes(pass, adapter, layer.of(0).parameter);
  attributes.first_column = layer.of(0).first_input;
  ops::grouped_dropout(pass.ops, out, in, pass.training->dropout_rows, groups.token_of_row, groups.offsets, attributes,
                       parameter_step(layer));
}

// The adapter's input: x, or x with dropout in scratch memory.
Tensor adapter_input(Pass& pass, const ExpertGroups& groups, const GroupedLayer& layer, const Adapter& adapter,
                     const Tensor& x) {
  if (!drops(pass, adapter)) return x;
  const Tensor dropped = pass.ops.scratch.allocate(x.dtype, x.shape);
  drop(pass, groups, layer, adapter, dropped, x);
  return dropped;
}

// factor * input A^T, [N, R], in scratch memory.
Tensor low_rank(Pass& pass, const ExpertGroups& groups, const Adapter& adapter, std::span<const Weight> a,
                const Tensor& input) {
  const Tensor low = pass.ops.scratch.allocate(input.dtype, Shape{input.rows(), a.front().out});
  ops::grouped_linear(pass.ops, low, input, a, groups.offsets, {.row_invariant = true, .max_rows = groups.tokens});
  ops::scale(pass.ops, low, low, adapter.factor);
  return low;
}

}  // namespace

bool GroupedLayer::supports(const Pass& pass) const {
  if (weights.empty()) return true;  // no gate
  if (pass.fp8 || of(0).bias) return false;
  if (pass.adapters.size() > 1) return false;
  if (pass.adapters.empty()) return true;
  const AdapterSegment& segment = pass.adapters.front();
  return segment.begin == 0 && segment.end == pass.batch.tokens() && LowRank(*this, pass).is_regular(mlps.size());
}

void GroupedLayer::forward(Pass& pass, const ExpertGroups& groups, const Tensor& y, const Tensor& x) const {
  const bool row_invariant = pass.row_invariant || pass.cache == nullptr;
  ops::grouped_linear(pass.ops, y, x, weights, groups.offsets,
                      {.row_invariant = row_invariant, .max_rows = groups.tokens});
  if (pass.lora) add_lora(pass, groups, y, x);
  const LowRank layers(*this, pass);
  if (!layers) return;
  const Arena::Scope scope(pass.ops.scratch);
  const Tensor input = adapter_input(pass, groups, *this, *layers.adapter, x);
  const Tensor low = low_rank(pass, groups, *layers.adapter, layers.a, input);
  ops::grouped_linear(pass.ops, y, low, layers.b, groups.offsets,
                      {.accumulate = true, .row_invariant = true, .max_rows = groups.tokens});
}

void GroupedLayer::add_lora(Pass& pass, const ExpertGroups& groups, const Tensor& y, const Tensor& x) const {
  int64_t rank = 0;
  for (size_t e = 0; e < mlps.size(); ++e) rank = std::max(rank, pass.lora->ranks[of(e).parameter]);
  if (rank == 0) return;
  ops::grouped_lora(
      pass.ops, y, x, pass.lora->entries, pass.lora->slots, groups.token_of_row, groups.offsets,
      {.layer = static_cast<int64_t>(of(0).parameter), .layer_step = parameter_step(*this), .rank = rank});
}

void GroupedLayer::gradients(Pass& pass, const ExpertGroups& groups, std::span<const int> trainable, const Tensor& dy,
                             const Tensor& x) const {
  GradientAccumulator& accumulator = pass.training->accumulator;
  const std::vector<int64_t>& offsets = pass.training->accumulation_offsets;
  for (size_t e = 0; e < trainable.size(); ++e) {
    if (trainable[e] < 0) continue;
    for (size_t unit = 0; unit + 1 < offsets.size(); ++unit) {
      const GradientAccumulator::Slot slot = accumulator.open(trainable[e], static_cast<int64_t>(unit), 0);
      ops::grouped_weight_gradient(pass.ops, slot.out, dy, x, groups.offsets, groups.token_of_row,
                                   {.expert = static_cast<int64_t>(e),
                                    .token_begin = offsets[unit],
                                    .token_end = offsets[unit + 1],
                                    .batch_tokens = groups.tokens,
                                    .accumulate = slot.accumulate});
      accumulator.close(trainable[e], static_cast<int64_t>(unit), 0);
    }
  }
}

void GroupedLayer::backward(Pass& pass, const ExpertGroups& groups, const Tensor& dx, const Tensor& dy, const Tensor& x,
                            bool accumulate) const {
  const Arena::Scope scope(pass.ops.scratch);
  std::vector<int> trainable;
  for (size_t e = 0; e < mlps.size(); ++e) trainable.push_back(of(e).weight_trainable);
  gradients(pass, groups, trainable, dy, x);

  const ops::GroupedLinearAttributes assign{.row_invariant = true, .max_rows = groups.tokens};
  ops::GroupedLinearAttributes add = assign;
  add.accumulate = true;
  const LowRank layers(*this, pass);
  Tensor dlow;  // the gradient of input A^T: factor * dy B, [N, R]
  if (layers) {
    const Adapter& adapter = *layers.adapter;
    dlow = pass.ops.scratch.allocate(dy.dtype, Shape{dy.rows(), layers.rank()});
    ops::grouped_linear_backward_input(pass.ops, dlow, dy, layers.b, groups.offsets, assign);
    ops::scale(pass.ops, dlow, dlow, adapter.factor);
    const Arena::Scope inner(pass.ops.scratch);
    const Tensor input = adapter_input(pass, groups, *this, adapter, x);
    gradients(pass, groups, layers.b_trainable, dy, low_rank(pass, groups, adapter, layers.a, input));
    gradients(pass, groups, layers.a_trainable, dlow, input);
  }
  ops::grouped_linear_backward_input(pass.ops, dx, dy, weights, groups.offsets, accumulate ? add : assign);
  if (!layers) return;
  if (!drops(pass, *layers.adapter)) {
    ops::grouped_linear_backward_input(pass.ops, dx, dlow, layers.a, groups.offsets, add);
    return;
  }
  const Tensor masked = pass.ops.scratch.allocate(dx.dtype, dx.shape);
  ops::grouped_linear_backward_input(pass.ops, masked, dlow, layers.a, groups.offsets, assign);
  drop(pass, groups, *this, *layers.adapter, masked, masked);
  ops::add(pass.ops, dx, dx, masked);
}

size_t GroupedLayer::bytes(int64_t rows, int64_t out, int64_t in, const PassShape& shape) {
  const int64_t rank = shape.adapter_rank;
  PassShape plain = shape;
  plain.adapter_rank = 0;
  // What the experts' gemms take where they are computed one by one.
  const size_t base = Linear::bytes(shape.tokens, out, in, plain);
  if (rank == 0) return base;
  if (shape.lora_batch) return std::max(base, ops::lora_bytes(rows, rank));
  return base + 2 * shape.matrix_bytes(rows, rank) + shape.matrix_bytes(rows, in);
}

}  // namespace ingot::nn
