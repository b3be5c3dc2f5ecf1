// A block's attention as data: causal softmax attention with grouped key/value heads. It owns its parameters and how
// they split, the tensors that backward reads, its cache entry and its FLOPs.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "spec/limits.h"
#include "spec/saved.h"

namespace ingot::spec {

class TableBuilder;

// Scaling of rotary frequencies for long contexts (transformers' modeling_rope_utils.py).
struct RopeScaling {
  enum class Kind { none, linear, llama3 };
  Kind kind = Kind::none;
  double factor = 1;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  int64_t original_context = 8192;
  bool operator==(const RopeScaling&) const = default;
};

// Rotary positions (Su et al. 2021, arXiv 2104.09864).
struct Rope {
  double theta = 10000;
  RopeScaling scaling;
  int64_t dim = 0;  // leading elements of a head that are rotated; 0: all
  bool operator==(const Rope&) const = default;
};

// Normalisation of queries and keys before rope: none; RMSNorm of every head separately (Qwen3); LayerNorm over all
// heads together (MPT's qk_ln).
enum class QkNorm { none, head, all_heads };

// Sequence lengths of attention, reduced to what its FLOPs depend on: the sum of squared lengths.
struct AttentionSquares {
  double tokens = 0;
  double squared = 0;  // sum over sub-sequences of length^2
};

enum class AttentionCount { causal, full_square };

// Elements per token in the key page and in the value page of a layer's KV cache.
struct CacheEntry {
  int64_t keys = 0;
  int64_t values = 0;
};

// Letters: Q heads, G kv_heads, D head_dim. The members after the blank line differ between families; their defaults
// are llama's.
struct Attention {
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;  // of queries, keys and values

  std::optional<Rope> rope = Rope{};  // absent: queries and keys are not rotated
  bool alibi = false;                 // Press et al. 2021, arXiv 2108.12409
  double alibi_bias_max = 8;
  int64_t window = 0;        // a token attends to itself and the window - 1 tokens before it; 0: to all before it
  bool bias = false;         // on q, k and v
  bool out_bias = false;     // on o
  bool fused_qkv = false;    // q, k and v are one linear layer; its rows are Q, then K, then V
  bool qkv_by_head = false;  // with fused_qkv: rows are q, k, v of head 0, then of head 1, ... (GPT-NeoX)
  QkNorm qk_norm = QkNorm::none;
  double clip_qkv = 0;  // q, k and v are clamped to [-c, c]; 0: no clamping
  double scale = 0;     // multiplies the scores; 0: 1/sqrt(D)
  double softcap = 0;   // scores become c tanh(score / c); 0: no softcap
  bool operator==(const Attention&) const = default;

  int64_t query_width() const { return heads * head_dim; }
  int64_t key_width() const { return kv_heads * head_dim; }

  // ErrorKind::corrupt or unsupported, naming the value, for members that contradict each other.
  void check() const;

  // Adds its linear layers and its norms of q and k.
  void add_parameters(TableBuilder& table) const;
  // Adds the saved tensors from q, k and v before their norms to attention's output before the output projection.
  void add_saved(SavedList& list) const;
  CacheEntry cache_entry() const { return {key_width(), key_width()}; }

  // The attention of one of `tp` tensor-parallel ranks, which has an equal share of the heads; where there are more
  // ranks than key/value heads, tp / kv_heads neighbours have the same one. check_split: ErrorKind::usage, naming the
  // number, when that is not possible; unsupported for what cannot be split yet.
  void check_split(Parts parts) const;
  Attention split(int64_t tp) const;

  // FLOPs of forward over whole sequences, without the linear layers. Causal counts half the square and, with a sliding
  // window, at most `window` keys per token; full_square ignores the window.
  double flops(AttentionSquares squares, AttentionCount count) const;
};

// The inverse frequencies of rope for heads of `head_dim`, one per rotated pair, with scaling, computed in double and
// rounded to fp32 as transformers does.
std::vector<float> rope_frequencies(const Rope& rope, int64_t head_dim);

// ALiBi's slope of every head (Press et al. 2022, arXiv 2108.12409; for numbers of heads that are not a power of two,
// as gen_slopes of llm-foundry).
std::vector<float> alibi_slopes(const Attention& attention);

}  // namespace ingot::spec
