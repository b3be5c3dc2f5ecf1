// A transformer block: attention and an MLP (or a mixture of experts), each with a norm before it, added to the
// residual.
//
//   sequential:  m = x + attention(norm(x)),  y = m + mlp(norm(m))
//   parallel:    y = x + attention(norm(x)) + mlp(norm'(x))
//
// With post norms, the results of attention and MLP are normalised before they are added.
#pragma once

#include "nn/attention.h"
#include "nn/experts.h"
#include "nn/mlp.h"
#include "nn/norm.h"

namespace ingot::nn {

struct Block {
  Norm attention_norm;
  Attention attention;
  Norm post_attention_norm;  // this and post_mlp_norm are absent when results are added without a norm
  Norm mlp_norm;
  Mlp mlp;          // absent in a mixture-of-experts block
  Experts experts;  // absent in a block with one MLP
  Norm post_mlp_norm;
  bool parallel = false;

  // Computes out [T, H] from state.input and fills the rest of `state`; absent when only the state is to be filled.
  // Where no backward follows, out, state.middle and state.input may be the same tensor.
  void forward(Pass& pass, const Tensor& out, BlockState& state) const;

  // Recomputes the tensors that `recompute` did not keep.
  void recompute_activations(Pass& pass, BlockState& state, spec::Recompute recompute) const;

  // dresidual [T, H]: on entry the gradient of the block's output, on return that of its input. With `input_gradient`
  // false nothing below the block is trainable, and dresidual is undefined on return. Overwrites parts of `state`.
  void backward(Pass& pass, const Tensor& dresidual, BlockState& state, bool input_gradient) const;

  // The layers that exist in this block.
  std::vector<Linear*> linears();
  std::vector<Norm*> norms();

  // Scratch bytes of forward (and recompute_activations), and of backward.
  static size_t forward_bytes(const spec::LayerSpec& spec, int64_t hidden, const PassShape& shape);
  static size_t backward_bytes(const spec::LayerSpec& spec, int64_t hidden, const PassShape& shape);
};

}  // namespace ingot::nn
