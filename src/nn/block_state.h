// The tensors that a transformer block makes in forward and reads in backward.
#pragma once

#include <string_view>

#include "spec/sizes.h"
#include "tensor/arena.h"

namespace ingot::nn {

// T tokens; H hidden, Q heads, G kv heads, D head size, F ffn. Which of them live where is spec::Recompute's choice.
struct BlockState {
  Tensor input;             // [T, H] the residual stream before the block
  Tensor attention_normed;  // [T, H]
  Tensor attention_rstd;    // [T] f32
  Tensor q;                 // [T, Q D] rotated
  Tensor k, v;              // [T, G D] k rotated
  Tensor attended;          // [T, Q D]
  Tensor lse;               // [Q, T] f32
  Tensor middle;            // [T, H] the residual stream between attention and MLP
  Tensor mlp_normed;        // [T, H]
  Tensor mlp_rstd;          // [T] f32
  Tensor gate, up;          // [T, F]
  Tensor activated;         // [T, F]

  // Takes the tensors of spec::block_tensors that `kept` wants (or does not want) kept, in that list's order.
  void take(Arena& arena, const spec::ModelSpec& model, DType activation, int64_t tokens, spec::Recompute recompute,
            bool kept);
};

// Bytes `take` needs for all of them, without the input.
size_t block_state_bytes(const spec::ModelSpec& model, size_t activation_bytes, int64_t tokens);

}  // namespace ingot::nn
