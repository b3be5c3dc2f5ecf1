// A pre-norm transformer block: x += attention(norm(x)); x += mlp(norm(x)).
#pragma once

#include "nn/attention.h"
#include "nn/mlp.h"
#include "nn/norm.h"

namespace ingot::nn {

struct Block {
  Norm attention_norm;
  Attention attention;
  Norm mlp_norm;
  Mlp mlp;

  // out [T, H] from state.input; fills the rest of `state`. out may not be state.input; absent when only the state is
  // wanted.
  void forward(Pass& pass, const Tensor& out, BlockState& state) const;

  // Makes again what `recompute` did not keep.
  void refill(Pass& pass, BlockState& state, spec::Recompute recompute) const;

  // dstream [T, H]: the gradient of the block's output on entry, of its input on return. With `input_gradient` false
  // nothing below is trained, and dstream is left as it falls. Overwrites parts of `state`.
  void backward(Pass& pass, const Tensor& dstream, BlockState& state, bool input_gradient) const;

  // Scratch of forward, and of backward, over `tokens` with sequences of at most `longest`; rank 0 for no adapter.
  static size_t forward_bytes(const spec::ModelSpec& model, int64_t tokens, int64_t longest, int64_t rank,
                              size_t activation_bytes, bool decoded, int threads);
  static size_t backward_bytes(const spec::ModelSpec& model, int64_t tokens, int64_t longest, int64_t rank,
                               size_t activation_bytes, bool decoded, int threads);
};

}  // namespace ingot::nn
