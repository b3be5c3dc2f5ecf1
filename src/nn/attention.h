// Self-attention with grouped key/value heads: from the norm before it to the output layer. Letters: T tokens, H
// hidden, Q heads, G kv heads, D head size.
#pragma once

#include <array>

#include "nn/block_state.h"
#include "nn/linear.h"
#include "nn/norm.h"
#include "ops/columns.h"

namespace ingot::nn {

struct Attention {
  Linear qkv;      // one layer in place of q, k and v where the family has it so
  Linear q, k, v;  // otherwise
  Linear o;
  Norm q_norm, k_norm;       // may be absent; rows are as wide as their weight: a head, or all of them
  bool qkv_by_head = false;  // the fused layer's rows: q, k, v of head 0, of head 1, ...; otherwise all Q, all K, all V
  float clip = 0;            // with the fused layer: q, k and v are clamped to [-clip, clip]; 0: not
  Tensor frequencies;        // [rotated pairs] f32; absent where positions are not rotary
  int64_t layer = 0;         // which of the cache's layers is ours
  ops::AttentionAttributes attributes;

  // Fills state.q .. state.lse from state.attention_normed; out [T, H] = o(attended), added to out with `accumulate`,
  // absent when only the state is to be filled. With a cache in the pass the new keys and values are stored there and
  // read from there.
  void forward(Pass& pass, const Tensor& out, BlockState& state, bool accumulate) const;

  // dout [T, H]: the gradient of o(attended), unchanged. dnormed [T, H] is assigned the gradient of
  // state.attention_normed; absent when nothing below needs it. Overwrites state.q and state.k.
  void backward(Pass& pass, const Tensor& dnormed, const Tensor& dout, BlockState& state) const;

  // Scratch of forward, and of backward, as Block's.
  static size_t forward_bytes(const spec::ModelSpec& model, const PassShape& shape);
  static size_t backward_bytes(const spec::ModelSpec& model, const PassShape& shape);

 private:
  std::array<ops::ColumnsAttributes, 3> columns() const;
  void project(Pass& pass, BlockState& state) const;
  void rotate(Pass& pass, const Tensor& queries, const Tensor& keys, bool inverse) const;
};

}  // namespace ingot::nn
