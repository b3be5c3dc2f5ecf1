// Builds a model's parameter table from what its layers add to it; names and initial values are the family's.
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

  // Parameters added from here on belong to block `layer`; or to none, and are used after the blocks.
  void enter_block(int64_t layer);
  void leave_blocks();

  // An embedding table with one row per token or position.
  void embedding(Role role, int64_t rows);
  // RMSNorm's weight, or LayerNorm's weight; and with norm_bias a bias; each of `features` elements.
  void norm(Role role, int64_t features);

  struct LinearRow {
    int64_t out;
    int64_t in;
    bool bias = false;
    Split split = Split::rows;
    std::vector<int64_t> row_groups = {};
    bool residual = false;  // its result is added to the residual
    int64_t rope_heads = 0;
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
