// Builds layers from a parameter table and weights; parameters are found by their role in the computation, not by name.
#pragma once

#include <map>
#include <tuple>

#include "nn/linear.h"
#include "nn/norm.h"
#include "spec/model.h"
#include "tensor/weight_set.h"

namespace ingot::models {

// Position of a role's parameters: in block `layer`, of expert `expert`; -1 outside blocks or experts.
struct Place {
  int64_t layer = -1;
  int64_t expert = -1;
};

class Binder {
 public:
  // `table` has one row per weight. All arguments outlive the binder. ErrorKind::internal when table and weights do not
  // match.
  Binder(const spec::ModelSpec& model, const std::vector<spec::ParamSpec>& table, const WeightSet& weights);

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
  std::vector<bool> fp8_;  // by parameter: spec::is_block_linear
  std::vector<bool> row_parallel_;
};

}  // namespace ingot::models
