#include "models/decoder/binder.h"

#include "base/error.h"
#include "spec/block_linear.h"
#include "spec/family.h"

namespace ingot::models {

Binder::Binder(const spec::ModelSpec& model, const std::vector<spec::HeldParameter>& held, const WeightSet& weights)
    : model_(model),
      weights_(weights),
      fp8_(weights.parameters.size()),
      row_parallel_(weights.parameters.size()),
      column_parallel_(weights.parameters.size()),
      output_groups_(weights.parameters.size()),
      first_input_(weights.parameters.size()) {
  for (const spec::HeldParameter& each : held) {
    const size_t whole = each.whole;
    const spec::ParamSpec& p = each.held;
    if (whole >= weights.parameters.size() || !(weights.parameters[whole].matrix || weights.parameters[whole].vector))
      throw_error(ErrorKind::internal, "{} has no weight for {}", model.family, p.name);
    fp8_[whole] = spec::is_block_linear(p);
    row_parallel_[whole] = p.split == spec::Split::columns;
    column_parallel_[whole] = p.split == spec::Split::rows;
    output_groups_[whole] = p.row_groups;
    first_input_[whole] = each.slice.columns.begin;
    if (!index_.emplace(std::tuple(p.role, p.layer, p.expert, p.bias), whole).second) {
      throw_error(ErrorKind::internal, "{} has the same role and position as another parameter of {}", p.name,
                  model.family);
    }
  }
}

bool Binder::has(spec::Role role, Place at) const { return index_.contains({role, at.layer, at.expert, false}); }

size_t Binder::index(spec::Role role, Place at, bool bias) const {
  const auto found = index_.find({role, at.layer, at.expert, bias});
  if (found == index_.end()) {
    throw_error(ErrorKind::internal, "{} has no parameter {} in block {}", model_.family, spec::gguf_name(role),
                at.layer);
  }
  return found->second;
}

const Weight& Binder::matrix(spec::Role role, Place at) const { return weights_.parameters[index(role, at)].matrix; }

nn::Linear Binder::linear(spec::Role role, Place at) const {
  nn::Linear layer;
  if (!has(role, at)) return layer;
  layer.parameter = index(role, at);
  layer.weight = weights_.parameters[layer.parameter].matrix;
  layer.fp8 = fp8_[layer.parameter];
  layer.row_parallel = row_parallel_[layer.parameter];
  layer.column_parallel = column_parallel_[layer.parameter];
  layer.output_groups = output_groups_[layer.parameter];
  layer.first_input = first_input_[layer.parameter];
  if (index_.contains({role, at.layer, at.expert, true})) {
    layer.bias_parameter = index(role, at, true);
    layer.bias = weights_.parameters[layer.bias_parameter].vector;
  }
  return layer;
}

nn::Norm Binder::norm(spec::Role role, Place at) const {
  nn::Norm norm;
  if (!has(role, at)) return norm;
  norm.kind = model_.norm;
  norm.epsilon = static_cast<float>(model_.norm_epsilon);
  norm.weight_offset = static_cast<float>(model_.norm_weight_offset);
  norm.parameter = index(role, at);
  norm.weight = weights_.parameters[norm.parameter].vector;
  if (index_.contains({role, at.layer, at.expert, true})) {
    norm.bias_parameter = index(role, at, true);
    norm.bias = weights_.parameters[norm.bias_parameter].vector;
  }
  return norm;
}

}  // namespace ingot::models
