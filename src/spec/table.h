// What the families' parameter tables are made with.
#pragma once

#include <string>
#include <vector>

#include "spec/model.h"

namespace ingot::spec {

// A layer's names: Hugging Face's and GGUF's, both without ".weight" or ".bias". In a block they are below its prefix.
struct Names {
  const char* hf;
  const char* gguf;
};

class TableBuilder {
 public:
  explicit TableBuilder(const ModelSpec& model) : model_(model) {}

  // What is added from here on belongs to block `layer`; -1: to none. Prefixes end with ".".
  void enter(int64_t layer, std::string hf_prefix, std::string gguf_prefix);

  // A table with a row a token or position.
  void embedding(Role role, Names names, int64_t rows);
  // RMSNorm's weight, or LayerNorm's weight and, with norm_bias, bias; all of `features`.
  void norm(Role role, Names names, int64_t features);

  struct LinearRow {
    int64_t out;
    int64_t in;
    bool bias = false;
    Split split = Split::rows;
    double std = 0;  // of the initial weight; 0: the model's initializer_range
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

// The tables. Order: embeddings, blocks, final norm, head.
std::vector<ParamSpec> llama_parameters(const ModelSpec& model);  // also mistral, qwen2, qwen3, gemma2 and mixtral
std::vector<ParamSpec> gpt2_parameters(const ModelSpec& model);
std::vector<ParamSpec> gpt_neox_parameters(const ModelSpec& model);
std::vector<ParamSpec> mpt_parameters(const ModelSpec& model);

}  // namespace ingot::spec
