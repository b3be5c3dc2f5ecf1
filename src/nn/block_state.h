// The tensors that a transformer block makes in forward and reads in backward.
#pragma once

#include "nn/norm.h"
#include "spec/sizes.h"
#include "tensor/arena.h"

namespace ingot::nn {

// T tokens; H hidden, Q heads, G kv heads, D head size, F ffn; of a mixture E experts, K of them a token, N = T K rows
// grouped by expert. Which of them live where is spec::Recompute's choice; which there are, the family's
// (spec::block_tensors).
struct BlockState {
  Tensor input;             // [T, H] the residual stream before the block
  Tensor attention_normed;  // [T, H]
  NormStatistics attention_statistics;
  Tensor qkv;               // [T, (Q + 2 G) D] before clamping
  Tensor q_input, k_input;  // [T, Q D], [T, G D] before their norms
  NormStatistics q_statistics, k_statistics;
  Tensor q;              // [T, Q D] rotated
  Tensor k, v;           // [T, G D] k rotated
  Tensor attended;       // [T, Q D]
  Tensor lse;            // [Q, T] f32
  Tensor attention_out;  // [T, H] before its norm
  NormStatistics post_attention_statistics;
  Tensor middle;      // [T, H] the residual stream between attention and MLP
  Tensor mlp_normed;  // [T, H]
  NormStatistics mlp_statistics;
  Tensor router;         // [T, E] its logits
  Tensor chosen;         // [T, K] i32 experts
  Tensor chosen_weight;  // [T, K] f32
  Tensor grouped_token;  // [T, K] i32 as N numbers: the token of each grouped row
  Tensor grouped_place;  // [T, K] i32: the grouped row of each choice
  Tensor grouped;        // [N, H] rows of mlp_normed
  Tensor gate, up;       // [T, F] or [N, F]
  Tensor activated;      // [T, F] or [N, F]
  Tensor expert_out;     // [N, H]
  Tensor mlp_out;        // [T, H] before its norm
  NormStatistics post_mlp_statistics;

  // Takes the tensors of spec::block_tensors that `kept` wants (or does not want) kept, in that list's order.
  void take(Arena& arena, const spec::ModelSpec& model, DType activation, int64_t tokens, spec::Recompute recompute,
            bool kept);
};

// Bytes `take` needs for all of them, without the input.
size_t block_state_bytes(const spec::ModelSpec& model, size_t activation_bytes, int64_t tokens);

}  // namespace ingot::nn
