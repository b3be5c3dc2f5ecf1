// The tensors that a transformer block computes in forward and reads in backward.
#pragma once

#include "nn/norm.h"
#include "spec/sizes.h"
#include "tensor/arena.h"

namespace ingot::nn {

// T tokens; H hidden, Q heads, G kv heads, D head size, F ffn; with a mixture of experts E experts, K of them per
// token, N = T K rows grouped by expert. With sequence parallelism a rank has its share of the T rows of what
// spec::SavedTensor::ranks says, and of `input`. spec::Recompute decides which are saved for backward; the layer
// decides which exist (spec::block_tensors).
struct BlockState {
  Tensor input;             // [T, H] the residual before the block
  Tensor attention_normed;  // [T, H]
  NormStatistics attention_statistics;
  Tensor qkv;               // [T, (Q + 2 G) D] before clamping
  Tensor q_input, k_input;  // [T, Q D], [T, G D] before the q and k norms
  NormStatistics q_statistics, k_statistics;
  Tensor q;                  // [T, Q D] after rope
  Tensor k, v;               // [T, G D] k after rope
  Tensor attention_context;  // [T, Q D]
  Tensor lse;                // [Q, T] f32
  Tensor attention_out;      // [T, H] before its norm
  NormStatistics post_attention_statistics;
  Tensor middle;      // [T, H] the residual between attention and MLP
  Tensor mlp_normed;  // [T, H]
  NormStatistics mlp_statistics;
  Tensor router;         // [T, E] router logits
  Tensor topk_ids;       // [T, K] i32 selected experts
  Tensor topk_weights;   // [T, K] f32
  Tensor token_of_row;   // [T, K] i32, read as N numbers: the token of each grouped row
  Tensor row_of_choice;  // [T, K] i32: the grouped row of each choice
  // Of a mixture; with expert parallelism they have room for T spec::Experts::max_rows() rows of all ranks' tokens.
  Tensor grouped;     // [N, H] rows of mlp_normed
  Tensor gate, up;    // [T, F] or [N, F]
  Tensor activated;   // [T, F] or [N, F]
  Tensor expert_out;  // [N, H]
  Tensor mlp_out;     // [T, H] before its norm
  NormStatistics post_mlp_statistics;

  // Allocates from `arena` the tensors of `list` (spec::block_tensors) for which spec::is_saved equals `saved`, in the
  // order of the list.
  void allocate(Arena& arena, const std::vector<spec::SavedTensor>& list, DType activation, int64_t tokens,
                spec::Recompute recompute, bool saved);

  Tensor& tensor_of(spec::Saved id);
};

// Bytes that `allocate` needs for all tensors of the list.
size_t block_state_bytes(const std::vector<spec::SavedTensor>& list, int64_t tokens);

}  // namespace ingot::nn
