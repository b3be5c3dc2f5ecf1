// Helpers that build the families' parameter tables.
#pragma once

#include <string>
#include <vector>

#include "spec/model.h"

namespace ingot::spec {

// A layer's names in Hugging Face's files and in GGUF, both without ".weight" or ".bias". In a block they follow its
// prefix.
struct Names {
  const char* hf;
  const char* gguf;
};

class TableBuilder {
 public:
  explicit TableBuilder(const ModelSpec& model) : model_(model) {}

  // Parameters added from here on belong to block `layer`, or to none if it is -1. Prefixes end with ".".
  void enter(int64_t layer, std::string hf_prefix, std::string gguf_prefix);

  // An embedding table with one row per token or position.
  void embedding(Role role, Names names, int64_t rows);
  // RMSNorm's weight, or LayerNorm's weight; and with norm_bias a bias; each of `features` elements.
  void norm(Role role, Names names, int64_t features);

  struct LinearRow {
    int64_t out;
    int64_t in;
    bool bias = false;
    Split split = Split::rows;
    double std = 0;  // of the weight's initial distribution; 0: the model's initializer_range
    int64_t rope_heads = 0;
    int64_t expert = -1;
    bool transposed = false;
  };
  void linear(Role role, Names names, const LinearRow& row);

  std::vector<ParamSpec> take() { return std::move(table_); }

 private:
  ParamSpec& add(Role role, Names names, bool bias, std::vector<int64_t> shape);

  const ModelSpec& model_;
  int64_t layer_ = -1;
  std::string hf_;
  std::string gguf_;
  std::vector<ParamSpec> table_;
};

// The parameter tables of the families. Order: embeddings, blocks, final norm, head.
std::vector<ParamSpec> llama_parameters(const ModelSpec& model);  // also mistral, qwen2, qwen3, gemma2 and mixtral
std::vector<ParamSpec> gpt2_parameters(const ModelSpec& model);
std::vector<ParamSpec> gpt_neox_parameters(const ModelSpec& model);
std::vector<ParamSpec> mpt_parameters(const ModelSpec& model);

}  // namespace ingot::spec
