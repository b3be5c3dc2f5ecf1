#include "nn/block.h"

#include <algorithm>

#include "ops/attention_bytes.h"
#include "ops/glu.h"
#include "ops/rms_norm_bytes.h"

namespace ingot::nn {

void Block::forward(Pass& pass, const Tensor& out, BlockState& state) const {
  attention_norm.forward(pass, state.attention_normed, state.attention_rstd, state.input);
  attention.forward(pass, state);
  mlp_norm.forward(pass, state.mlp_normed, state.mlp_rstd, state.middle);
  mlp.forward(pass, out, state);
}

void Block::refill(Pass& pass, BlockState& state, spec::Recompute recompute) const {
  switch (recompute) {
    case spec::Recompute::none: return;
    case spec::Recompute::selective:
      attention_norm.forward(pass, state.attention_normed, {}, state.input);
      mlp_norm.forward(pass, state.mlp_normed, {}, state.middle);
      ops::glu(pass.ops, state.activated, state.gate, state.up, ops::Activation::silu);
      return;
    case spec::Recompute::full: forward(pass, {}, state); return;
  }
}

void Block::backward(Pass& pass, const Tensor& dstream, BlockState& state, bool input_gradient) const {
  Arena& scratch = pass.ops.scratch;
  const Arena::Scope scope(scratch);
  const Tensor dnormed = scratch.take(dstream.dtype, dstream.shape);
  mlp.backward(pass, dnormed, dstream, state);
  mlp_norm.backward(pass, dstream, dnormed, state.middle, state.mlp_rstd, true);
  const bool below = input_gradient || attention_norm.trainable >= 0;
  attention.backward(pass, below ? dnormed : Tensor{}, dstream, state);
  if (below) attention_norm.backward(pass, dstream, dnormed, state.input, state.attention_rstd, true);
}

size_t Block::forward_bytes(const spec::ModelSpec& model, int64_t tokens, int64_t longest, int64_t rank,
                            size_t activation_bytes, bool decoded, int threads) {
  const int64_t q = model.heads * model.head_dim;
  const int64_t kv = model.kv_heads * model.head_dim;
  size_t linear = 0;
  for (const auto& [out, in] : {std::pair{q, model.hidden},
                                {kv, model.hidden},
                                {model.hidden, q},
                                {model.ffn, model.hidden},
                                {model.hidden, model.ffn}}) {
    linear = std::max(linear, Linear::bytes(tokens, out, in, rank, activation_bytes, decoded));
  }
  return std::max(linear, ops::attention_bytes(tokens, longest, model.heads, model.head_dim, threads));
}

size_t Block::backward_bytes(const spec::ModelSpec& model, int64_t tokens, int64_t longest, int64_t rank,
                             size_t activation_bytes, bool decoded, int threads) {
  const auto matrix = [&](int64_t features) {
    return Arena::footprint(static_cast<size_t>(tokens * features) * activation_bytes);
  };
  const int64_t q = model.heads * model.head_dim;
  const int64_t kv = model.kv_heads * model.head_dim;
  const size_t inner = std::max(forward_bytes(model, tokens, longest, rank, activation_bytes, decoded, threads),
                                ops::rms_norm_bytes(tokens, model.hidden));
  return matrix(model.hidden) + std::max(matrix(model.ffn), 2 * matrix(q) + 2 * matrix(kv)) + inner;
}

}  // namespace ingot::nn
