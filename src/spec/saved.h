// The tensors that a block's forward computes and its backward reads.
#pragma once

#include <cstdint>
#include <vector>

namespace ingot::spec {

// What backward recomputes instead of keeping: nothing; the cheap element-wise results (norm outputs, the gated
// activation); or everything inside a block except its input.
enum class Recompute { none, selective, full };

const char* name(Recompute recompute);

// nn::BlockState has a member for each, with its shape and meaning.
enum class Saved {
  attention_normed,
  attention_rstd,
  attention_mean,
  qkv,
  q_input,
  k_input,
  q_rstd,
  q_mean,
  k_rstd,
  k_mean,
  q,
  k,
  v,
  attention_context,
  lse,
  attention_out,
  post_attention_rstd,
  post_attention_mean,
  middle,
  mlp_normed,
  mlp_rstd,
  mlp_mean,
  router,
  topk_ids,
  topk_weights,
  token_of_row,
  row_of_choice,
  grouped,
  gate,
  up,
  activated,
  expert_out,
  mlp_out,
  post_mlp_rstd,
  post_mlp_mean,
};

// A tensor with a fixed number of elements per token.
struct SavedTensor {
  // matrix: [T rows, features / rows] of activations. statistic: [T features] f32. by_feature: [features, T] f32. real,
  // index: [T, features] f32, i32.
  enum class Kind { matrix, statistic, by_feature, real, index };
  Saved id;
  int64_t features;  // elements per token
  int64_t bytes;     // bytes per element
  Kind kind;
  int64_t rows = 1;
  bool cheap = false;  // Recompute::selective computes it again from other saved tensors
  int64_t ranks = 1;   // tensor-parallel ranks that each have an equal share of its T (ModelShard::row_ranks)
};

// Whether sequence parallelism divides its rows: those of the residual, and of norms over it.
bool is_of_residual(Saved id);

// Collects the saved tensors of a block, in the order of computation. A matrix has `activation_bytes` bytes per
// element; a norm saves a mean too when it is a LayerNorm.
class SavedList {
 public:
  SavedList(int64_t activation_bytes, bool layer_norm) : activation_bytes_(activation_bytes), means_(layer_norm) {}

  // [T rows, features]
  void matrix(Saved id, int64_t features, int64_t rows = 1) {
    push(id, rows * features, SavedTensor::Kind::matrix, rows);
  }
  void cheap_matrix(Saved id, int64_t features, int64_t rows = 1) {
    matrix(id, features, rows);
    list_.back().cheap = true;
  }
  // A norm's statistics, of `rows` rows per token.
  void statistics(Saved rstd, Saved mean, int64_t rows = 1) {
    push(rstd, rows, SavedTensor::Kind::statistic);
    if (means_) push(mean, rows, SavedTensor::Kind::statistic);
  }
  // Numbers of 4 bytes.
  void numbers(Saved id, int64_t features, SavedTensor::Kind kind) { push(id, features, kind); }

  std::vector<SavedTensor> take() { return std::move(list_); }

 private:
  void push(Saved id, int64_t features, SavedTensor::Kind kind, int64_t rows = 1) {
    list_.push_back({id, features, kind == SavedTensor::Kind::matrix ? activation_bytes_ : 4, kind, rows});
  }

  int64_t activation_bytes_;
  bool means_;
  std::vector<SavedTensor> list_;
};

}  // namespace ingot::spec
