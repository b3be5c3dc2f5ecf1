// Builds layers from a parameter table and weights; parameters are found by their role in the computation, not by name.
#pragma once

#include <map>
#include <tuple>

#include "nn/linear.h"
#include "nn/norm.h"
#include "spec/model_shard.h"
#include "tensor/weight_set.h"

namespace ingot::models {

// Position of a role's parameters: in block `layer`, of expert `expert`; -1 outside blocks or experts.
struct Place {
  int64_t layer = -1;
  int64_t expert = -1;
};

class Binder {
 public:
  // `held`: the parameters of a shard; `weights`: by index in the whole model. Parameters are numbered as there. All
  // arguments outlive the binder. ErrorKind::internal when a weight is missing.
  Binder(const spec::ModelSpec& model, const std::vector<spec::HeldParameter>& held, const WeightSet& weights);

  // `layer` is the block's index in the whole model.
  bool has(spec::Role role, Place at = {}) const;
  size_t index(spec::Role role, Place at = {}, bool bias = false) const;
  const Weight& matrix(spec::Role role, Place at = {}) const;

  // The result has no weights when the family has no parameter of that role.
  nn::Linear linear(spec::Role role, Place at = {}) const;
  nn::Norm norm(spec::Role role, Place at = {}) const;

 private:
  const spec::ModelSpec& model_;
  const WeightSet& weights_;
  std::map<std::tuple<spec::Role, int64_t, int64_t, bool>, size_t> index_;
  // By parameter; false or 0 for those that are not held.
  std::vector<bool> fp8_;  // spec::is_block_linear
  std::vector<bool> row_parallel_, column_parallel_;
  std::vector<std::vector<int64_t>> output_groups_;
  std::vector<int64_t> first_input_;
};

}  // namespace ingot::models
