// From a parameter table and weights to layers: parameters are found by what they are to the computation, not by name.
#pragma once

#include <map>
#include <tuple>

#include "nn/linear.h"
#include "nn/norm.h"
#include "spec/model.h"
#include "tensor/weight_set.h"

namespace ingot::models {

// Where a role's parameters are: in block `layer`, of expert `expert`; -1 outside them.
struct Place {
  int64_t layer = -1;
  int64_t expert = -1;
};

class Binder {
 public:
  // `table` has a row a weight. All outlive the binder. ErrorKind::internal when they do not belong together.
  Binder(const spec::ModelSpec& model, const std::vector<spec::ParamSpec>& table, const WeightSet& weights);

  // Blocks have their numbers in the model.
  bool has(spec::Role role, Place at = {}) const;
  size_t index(spec::Role role, Place at = {}, bool bias = false) const;
  const Weight& matrix(spec::Role role, Place at = {}) const;

  // Layers without weights where the family has none of that role.
  nn::Linear linear(spec::Role role, Place at = {}) const;
  nn::Norm norm(spec::Role role, Place at = {}) const;

 private:
  const spec::ModelSpec& model_;
  const WeightSet& weights_;
  std::map<std::tuple<spec::Role, int64_t, int64_t, bool>, size_t> index_;
  std::vector<bool> fp8_;  // by parameter: spec::is_block_linear
  std::vector<bool> sums_over_ranks_;
};

}  // namespace ingot::models
