// Builds a model's parameter table: layers add their parameters; names and initialisation come from the family.
#pragma once

#include <string>
#include <vector>

#include "spec/family.h"
#include "spec/model.h"

namespace ingot::spec {

class TableBuilder {
 public:
  // ErrorKind::unsupported for an unknown family. `model` outlives the builder.
  explicit TableBuilder(const ModelSpec& model) : model_(model), family_(family_named(model.family)) {}

  int64_t hidden() const { return model_.hidden; }
  const Family& family() const { return family_; }

  // After enter_block, added parameters belong to block `layer`; after leave_blocks, to no block, and they are used
  // after the blocks.
  void enter_block(int64_t layer);
  void leave_blocks();

  // An embedding table with one row per token or position.
  void embedding(Role role, int64_t rows);
  // The weight of an RMSNorm or LayerNorm and, with norm_bias, its bias; each has `features` elements.
  void norm(Role role, int64_t features);

  struct LinearRow {
    int64_t out;
    int64_t in;
    bool bias = false;
    Split split = Split::rows;
    std::vector<int64_t> row_groups = {};
    bool residual = false;  // its result is added to the residual
    int64_t rope_heads = 0;
    int64_t kv_heads = 0;
    int64_t fused_heads = 0;
    bool precise = false;
    int64_t expert = -1;
    double used = 1;
  };
  void linear(Role role, const LinearRow& row);

  std::vector<ParamSpec> take() { return std::move(table_); }

 private:
  ParamSpec& add(Role role, bool bias, std::vector<int64_t> shape, int64_t expert = -1);

  const ModelSpec& model_;
  const Family& family_;
  int64_t layer_ = -1;
  bool after_blocks_ = false;
  std::string hf_;
  std::string gguf_;
  std::vector<ParamSpec> table_;
};

}  // namespace ingot::spec
