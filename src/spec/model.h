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

// How rotary frequencies are stretched for long contexts (hf_models.md, "Llama 3.1 scaling" and the line after it).
struct RopeScaling {
  enum class Kind { none, linear, llama3 };
  Kind kind = Kind::none;
  double factor = 1;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  int64_t original_context = 8192;
  bool operator==(const RopeScaling&) const = default;
};

// Hyper-parameters. Letters: V vocab, H hidden, L layers, Q heads, G kv_heads, D head_dim, F ffn.
struct ModelSpec {
  std::string family;  // "llama"
  int64_t vocab = 0;
  int64_t hidden = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t ffn = 0;
  int64_t context = 0;  // most positions the model was made for
  double norm_epsilon = 1e-6;
  double rope_theta = 10000;
  RopeScaling rope_scaling;
  bool tied_head = false;       // the output head is the token embedding
  bool attention_bias = false;  // on q, k, v and o
  bool mlp_bias = false;        // on gate, up and down
  double initializer_range = 0.02;
  bool operator==(const ModelSpec&) const = default;
};

// ErrorKind::unsupported / corrupt, naming the key, for hyper-parameters that contradict each other or cannot be run.
void check(const ModelSpec& model);

enum class Init { normal, zeros, ones };

// How a parameter splits under tensor parallelism: not at all, by rows (outputs) or by columns (inputs).
enum class Split { none, rows, columns };

struct ParamSpec {
  std::string name;            // Hugging Face's, for instance "model.layers.0.self_attn.q_proj.weight"
  std::vector<int64_t> shape;  // [out, in] or [n]
  Init init = Init::normal;
  double init_std = 0;  // of Init::normal
  bool decay = false;   // weight decay applies (matrices yes; norms and biases no)
  Split split = Split::none;
  bool linear = false;     // a linear layer's matrix: LoRA may target it
  bool head = false;       // the output head: "all-linear" leaves it out
  int64_t layer = -1;      // block number; -1 outside the blocks
  std::string gguf_name;   // for instance "blk.0.attn_q.weight"
  int64_t rope_heads = 0;  // not 0: rows are that many rotary heads, which GGUF's llama keeps interleaved

  int64_t elements() const;
  // The module's path: the name without ".weight" or ".bias".
  std::string_view module() const;
};

// The parameters of a model, in the order they are made and stored in memory (embedding, blocks, final norm, head).
std::vector<ParamSpec> parameters(const ModelSpec& model);

int64_t num_parameters(const ModelSpec& model);

// The D/2 inverse frequencies of rope, scaling applied, computed in double and rounded to fp32 as transformers does.
std::vector<float> rope_frequencies(const ModelSpec& model);

// Names of the linear modules that LoRA may target, without layer numbers, in order: "q_proj", ..., "lm_head" last.
std::vector<std::string> lora_targets(const ModelSpec& model);

// Models that Ingot knows. ErrorKind::unsupported, naming those it has, for another `model_type`.
std::span<const std::string_view> families();

}  // namespace ingot::spec
