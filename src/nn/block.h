// A transformer block: attention and an MLP (or a mixture of them), each between norms and added to the residual
// stream.
//
//   sequential:  m = x + attention(norm(x)),  y = m + mlp(norm(m))
//   parallel:    y = x + attention(norm(x)) + mlp(norm'(x))
//
// With post norms a result is normalised before it is added.
#pragma once

#include "nn/attention.h"
#include "nn/experts.h"
#include "nn/mlp.h"
#include "nn/norm.h"

namespace ingot::nn {

struct Block {
  Norm attention_norm;
  Attention attention;
  Norm post_attention_norm;  // this and post_mlp_norm: absent where results are added as they are
  Norm mlp_norm;
  Mlp mlp;          // or:
  Experts experts;  // where there are any
  Norm post_mlp_norm;
  bool parallel = false;

  // out [T, H] from state.input; fills the rest of `state`. out may not be state.input; absent when only the state is
  // wanted.
  void forward(Pass& pass, const Tensor& out, BlockState& state) const;

  // Makes again what `recompute` did not keep.
  void refill(Pass& pass, BlockState& state, spec::Recompute recompute) const;

  // dstream [T, H]: the gradient of the block's output on entry, of its input on return. With `input_gradient` false
  // nothing below is trained, and dstream is left as it falls. Overwrites parts of `state`.
  void backward(Pass& pass, const Tensor& dstream, BlockState& state, bool input_gradient) const;

  // The layers there are.
  std::vector<Linear*> linears();
  std::vector<Norm*> norms();

  // Scratch of forward (refill included), and of backward.
  static size_t forward_bytes(const spec::ModelSpec& model, const PassShape& shape);
  static size_t backward_bytes(const spec::ModelSpec& model, const PassShape& shape);
};

}  // namespace ingot::nn
