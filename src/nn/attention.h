// Self-attention with rotary positions and grouped key/value heads, between the norm before it and the residual after
// it.
#pragma once

#include "nn/block_state.h"
#include "nn/linear.h"

namespace ingot::nn {

struct Attention {
  Linear q, k, v, o;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  Tensor frequencies;  // [D/2] f32
  int64_t layer = 0;   // which of the cache's layers is ours

  // Fills state.q .. state.lse from state.attention_normed, and state.middle = state.input + o(attended). With a cache
  // in the pass the new keys and values are stored there and read from there.
  void forward(Pass& pass, BlockState& state) const;

  // dstream [T, H]: the gradient of state.middle, unchanged. dnormed [T, H] is assigned the gradient of
  // state.attention_normed; absent when nothing below needs it.
  void backward(Pass& pass, const Tensor& dnormed, const Tensor& dstream, BlockState& state) const;

  ops::AttentionAttributes attributes() const;
};

}  // namespace ingot::nn
