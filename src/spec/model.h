// A model's hyper-parameters and its parameter table: everything that allocation, initialisation, sharding, optimizer
// groups, checkpoints, LoRA and the planner need to know about a model, as data.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "spec/layer.h"
#include "spec/parameter.h"

namespace ingot::spec {

enum class NormKind { rms, layer };

// Hyper-parameters. Letters: V vocab, H hidden. The members after the blank line differ between families; their
// defaults are llama's.
struct ModelSpec {
  std::string family;  // one of families()
  int64_t vocab = 0;
  int64_t hidden = 0;
  int64_t context = 0;  // max positions of the model; the number of rows of a learned position table
  double norm_epsilon = 1e-6;
  bool tied_head = false;  // the output head is the token embedding
  double initializer_range = 0.02;
  std::vector<LayerSpec> layers;  // the blocks, from the first on; most families' are all alike (repeated)

  bool learned_positions = false;  // a position table, added to the token embeddings
  NormKind norm = NormKind::rms;
  bool norm_bias = false;
  double norm_weight_offset = 0;  // Gemma's norms multiply by 1 + weight
  double embedding_scale = 1;     // of the embeddings, rounded to the activations' type as transformers does
  double logit_scale = 1;
  double final_softcap = 0;  // logits become c tanh(logit / c); 0: no softcap
  bool operator==(const ModelSpec&) const = default;

  int64_t num_layers() const { return static_cast<int64_t>(layers.size()); }
  const LayerSpec& layer(int64_t index) const { return layers[static_cast<size_t>(index)]; }
};

// `count` equal layers. ErrorKind::corrupt, naming the number, when it is below 1 or above 65536.
std::vector<LayerSpec> repeated(int64_t count, const LayerSpec& layer);

// The largest fn(layer) over the model's layers; fn is called once for each run of equal layers.
template <class Fn>
auto max_over_layers(const ModelSpec& model, Fn fn) {
  decltype(fn(model.layers.front())) largest{};
  for (size_t i = 0; i < model.layers.size(); ++i) {
    if (i == 0 || !(model.layers[i] == model.layers[i - 1])) largest = std::max(largest, fn(model.layers[i]));
  }
  return largest;
}

// The largest reduction dimension of the blocks' gemms: hidden size, all heads of a block, or an MLP's features.
// Rounding errors grow with it.
int64_t longest_row(const ModelSpec& model);

// ErrorKind::unsupported or corrupt, naming the key, for hyper-parameters that contradict each other or are not
// supported; unsupported, naming families(), for an unknown family.
void check(const ModelSpec& model);

// The same model with Experts::balanced in every mixture.
ModelSpec with_balanced_routing(ModelSpec model);

// The parameters of a model, in the order of creation and of storage in memory (embedding, blocks, final norm, head).
std::vector<ParamSpec> parameters(const ModelSpec& model);

int64_t num_parameters(const ModelSpec& model);

// Names of the linear modules that LoRA may target, without layer numbers, in order: "q_proj", ..., "lm_head" last.
std::vector<std::string> lora_targets(const ModelSpec& model);

// The supported model families, with the names of Hugging Face's `model_type`.
std::span<const std::string_view> families();

}  // namespace ingot::spec
