// A model's hyper-parameters and its parameter table: everything that allocation, initialisation, sharding, optimizer
// groups, checkpoints, LoRA and the planner need to know about a family, as data.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ingot::spec {

// Scaling of rotary frequencies for long contexts (hf_models.md, "Llama 3.1 scaling" and the line after it).
struct RopeScaling {
  enum class Kind { none, linear, llama3 };
  Kind kind = Kind::none;
  double factor = 1;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  int64_t original_context = 8192;
  bool operator==(const RopeScaling&) const = default;
};

enum class Positions { rotary, alibi, learned };  // alibi: Press et al. 2021, arXiv 2108.12409
enum class NormKind { rms, layer };
enum class Activation { silu, gelu, gelu_tanh };  // gelu: exact, with erf; gelu_tanh: the tanh approximation
// Normalisation of queries and keys before rope: none; RMSNorm of every head separately (Qwen3); LayerNorm over all
// heads together (MPT's qk_ln).
enum class QkNorm { none, head, all_heads };
// Which blocks use the sliding window: every block, or blocks with an even index.
enum class WindowPattern { every, even };

// Hyper-parameters. Letters: V vocab, H hidden, L layers, Q heads, G kv_heads, D head_dim, F ffn. The members after the
// blank line differ between families; their defaults are llama's.
struct ModelSpec {
  std::string family;  // one of families()
  int64_t vocab = 0;
  int64_t hidden = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t ffn = 0;
  int64_t context = 0;  // max positions of the model; the number of rows of a learned position table
  double norm_epsilon = 1e-6;
  double rope_theta = 10000;
  RopeScaling rope_scaling;
  bool tied_head = false;       // the output head is the token embedding
  bool attention_bias = false;  // on q, k and v
  bool mlp_bias = false;        // on every linear layer of the MLP
  double initializer_range = 0.02;

  bool attention_out_bias = false;  // on o
  Positions positions = Positions::rotary;
  int64_t rotary_dim = 0;  // leading elements of a head that are rotated; 0: all
  double alibi_bias_max = 8;
  NormKind norm = NormKind::rms;
  bool norm_bias = false;
  double norm_weight_offset = 0;  // Gemma's norms multiply by 1 + weight
  bool fused_qkv = false;         // q, k and v are one linear layer; its rows are Q, then K, then V
  bool qkv_by_head = false;       // with fused_qkv: rows are q, k, v of head 0, then of head 1, ... (GPT-NeoX)
  QkNorm qk_norm = QkNorm::none;
  double clip_qkv = 0;           // q, k and v are clamped to [-c, c]; 0: no clamping
  double attention_scale = 0;    // multiplies the scores; 0: 1/sqrt(D)
  double attention_softcap = 0;  // scores become c tanh(score / c); 0: no softcap
  int64_t window = 0;            // a token attends to itself and the window - 1 tokens before it; 0: to all before it
  WindowPattern window_pattern = WindowPattern::every;
  bool parallel_residual = false;  // x + attention(norm(x)) + mlp(norm'(x))
  bool post_norms = false;         // attention's and the MLP's results are normalised before they are added (Gemma 2)
  Activation activation = Activation::silu;
  bool gated_mlp = true;  // down(act(gate) up), otherwise down(act(up))
  int64_t experts = 0;    // 0: one MLP; otherwise a router selects experts_per_token of them
  int64_t experts_per_token = 0;
  double embedding_scale = 1;  // of the embeddings, rounded to the activations' type as transformers does
  double logit_scale = 1;
  double final_softcap = 0;  // logits become c tanh(logit / c); 0: no softcap
  bool operator==(const ModelSpec&) const = default;

  int64_t window_of(int64_t layer) const {
    return window_pattern == WindowPattern::every || layer % 2 == 0 ? window : 0;
  }
};

// ErrorKind::unsupported or corrupt, naming the key, for hyper-parameters that contradict each other or are not
// supported; unsupported, naming families(), for an unknown family.
void check(const ModelSpec& model);

enum class Init { normal, zeros, ones };

// How a parameter is split under tensor parallelism: not at all, by rows (outputs) or by columns (inputs). spec/part.h
// splits only parameters in blocks; embeddings and heads are marked as split by rows, but so far every rank holds them
// whole.
enum class Split { none, rows, columns };

// A parameter's role in the computation. A layer's weight and bias have the same role.
enum class Role {
  embedding,
  position_embedding,
  attention_norm,
  qkv,  // with fused_qkv, in place of q, k and v
  q,
  k,
  v,
  q_norm,
  k_norm,
  attention_out,
  post_attention_norm,
  mlp_norm,
  router,
  gate,
  up,
  down,
  post_mlp_norm,
  final_norm,
  head,
};

struct ParamSpec {
  std::string name;  // Hugging Face's, for instance "model.layers.0.self_attn.q_proj.weight"
  Role role = Role::embedding;
  bool bias = false;           // of that role's layer or norm; otherwise a weight
  int64_t layer = -1;          // block number; -1 outside the blocks
  int64_t expert = -1;         // index among the block's experts; -1 outside them
  std::vector<int64_t> shape;  // [out, in] or [n]
  Init init = Init::normal;
  double init_std = 0;  // of Init::normal
  bool decay = false;   // weight decay applies (to matrices, not to norms and biases)
  Split split = Split::none;
  bool linear = false;      // a linear layer's matrix: LoRA may target it ("all-linear" excludes the head)
  bool transposed = false;  // Hugging Face's files store it as [in, out] (GPT-2's Conv1D)
  std::string gguf_name;    // for instance "blk.0.attn_q.weight"
  int64_t rope_heads = 0;   // not 0: rows are this many rotary heads, which GGUF's llama stores interleaved

  int64_t elements() const;
  // The module's path: the name without ".weight" or ".bias".
  std::string_view module() const;
};

// The parameters of a model, in the order of creation and of storage in memory (embedding, blocks, final norm, head).
std::vector<ParamSpec> parameters(const ModelSpec& model);

int64_t num_parameters(const ModelSpec& model);

// The inverse frequencies of rope, one per rotated pair (of rotary_dim or D), with scaling, computed in double and
// rounded to fp32 as transformers does.
std::vector<float> rope_frequencies(const ModelSpec& model);

// ALiBi's slope of every head (Press et al. 2022, arXiv 2108.12409; for numbers of heads that are not a power of two,
// as in hf_models.md).
std::vector<float> alibi_slopes(const ModelSpec& model);

// Names of the linear modules that LoRA may target, without layer numbers, in order: "q_proj", ..., "lm_head" last.
std::vector<std::string> lora_targets(const ModelSpec& model);

// The supported model families, with the names of Hugging Face's `model_type`.
std::span<const std::string_view> families();

}  // namespace ingot::spec
