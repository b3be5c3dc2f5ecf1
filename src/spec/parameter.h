// A row of a model's parameter table.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ingot::spec {

enum class Init { normal, zeros, ones };

// How a parameter is split under tensor parallelism: not at all, by rows (outputs) or by columns (inputs).
// spec/model_shard.h says which.
enum class Split { none, rows, columns };

// A parameter's role in the computation. A layer's weight and bias have the same role; expert_gate, expert_up and
// expert_down are those of every expert of a block.
enum class Role {
  embedding,
  position_embedding,
  attention_norm,
  qkv,  // one fused linear layer in place of q, k and v
  q,
  k,
  v,
  q_norm,
  k_norm,
  attention_out,
  post_attention_norm,
  mlp_norm,
  gate,
  up,
  down,
  router,
  expert_gate,
  expert_up,
  expert_down,
  post_mlp_norm,
  final_norm,
  head,
};

struct ParamSpec {
  std::string name;  // Hugging Face's, for instance "model.layers.0.self_attn.q_proj.weight"
  Role role = Role::embedding;
  bool bias = false;           // of that role's layer or norm; otherwise a weight
  int64_t layer = -1;          // block number; -1 outside the blocks
  bool after_blocks = false;   // outside the blocks: used after them (final norm, head), otherwise before them
  int64_t expert = -1;         // index among the block's experts; -1 outside them
  std::vector<int64_t> shape;  // [out, in] or [n]
  Init init = Init::normal;
  double init_std = 0;  // of Init::normal
  bool decay = false;   // weight decay applies (to matrices, not to norms and biases)
  Split split = Split::none;
  // With Split::rows: the sizes of consecutive groups of rows, each of which is split separately. Empty: a single
  // group.
  std::vector<int64_t> row_groups;
  bool linear = false;      // a linear layer's matrix: LoRA may target it ("all-linear" excludes the head)
  bool norm = false;        // a norm's weight
  bool precise = false;     // a matrix that is never quantised: the router, and position embeddings
  bool transposed = false;  // Hugging Face's files store it as [in, out] (GPT-2's Conv1D)
  std::string gguf_name;    // for instance "blk.0.attn_q.weight"
  int64_t rope_heads = 0;   // not 0: rows are this many heads, whose rotary pairs GGUF's llama stores interleaved
  // Not 0: rows are this many key/value heads; with row_groups, those of all groups but the first are. More
  // tensor-parallel ranks than heads have copies of them (spec::CopiedRows).
  int64_t kv_heads = 0;
  int64_t fused_heads = 0;  // not 0: rows are q, k, v of this many heads in turn; GGUF stores all q, then k, then v
  double used = 1;          // the fraction of tokens that the parameter is used for; below 1 for an expert

  int64_t elements() const;
  // The module's path: the name without ".weight" or ".bias".
  std::string_view module() const;
};

}  // namespace ingot::spec
