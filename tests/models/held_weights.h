// A model's weights in host memory, whole and as a shard holds them.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <span>
#include <vector>

#include "comm/group.h"
#include "spec/model_shard.h"
#include "tensor/weight_set.h"
#include "tests/counting_device.h"
#include "tests/models/sums.h"
#include "train/initialise.h"

namespace ingot::models {

using Values = std::vector<float>;

// The whole model's parameters in host memory.
inline std::vector<Values> whole_weights(const spec::ModelSpec& spec) {
  CountingDevice device;
  const WeightSet weights = train::random_weights(device, spec, DType::f32, 11);
  std::vector<Values> values;
  for (const Parameter& p : weights.parameters) {
    const Tensor t = p.matrix ? p.matrix.tensor() : p.vector;
    values.emplace_back(t.as<float>(), t.as<float>() + t.elements());
    if (p.matrix) continue;
    // Away from 0 and 1, so that a missing factor or term would be noticed.
    for (size_t i = 0; i < values.back().size(); ++i)
      values.back()[i] += 0.3F * std::sin(static_cast<float>(i * 7 + 1));
  }
  return values;
}

// Maps a part's elements of a parameter to the whole: fn(index in the whole, index in the part).
template <class Fn>
void for_elements(const spec::HeldParameter& p, const spec::ParamSpec& whole, Fn fn) {
  const int64_t width = whole.shape.size() > 1 ? whole.shape[1] : 1;
  int64_t elements = 0;
  spec::for_runs(p.slice, width, [&](int64_t first, int64_t count, int64_t at) {
    for (int64_t i = 0; i < count; ++i) fn(static_cast<size_t>(first + i), static_cast<size_t>(at + i));
    elements += count;
  });
  EXPECT_EQ(elements, p.held.elements()) << p.held.name;
}

// The parameters of a shard, and a sum of gradients for each. They point into this object.
struct HeldWeights {
  std::vector<spec::HeldParameter> held;
  std::vector<Values> values, gradients;  // by held parameter
  WeightSet weights;
  std::vector<Tensor> sums;
  std::vector<int> trainable;  // by parameter of the whole model, its index among those held: all are trained
  Values lookup;               // gradient of a tied embedding's lookup, where the head is held too

  HeldWeights(Device& device, const spec::ModelSpec& spec, const spec::ModelShard& shard,
              const std::vector<Values>& whole)
      : held(spec::held_parameters(spec, shard)) {
    const std::vector<spec::ParamSpec> table = spec::parameters(spec);
    weights.parameters.resize(table.size());
    trainable.assign(table.size(), -1);
    for (const spec::HeldParameter& p : held) {
      const auto elements = static_cast<size_t>(p.held.elements());
      values.emplace_back(elements);
      gradients.emplace_back(elements);
      for_elements(p, table[p.whole], [&](size_t from, size_t to) { values.back()[to] = whole[p.whole][from]; });
      const Shape shape(p.held.shape);
      const Tensor tensor{values.back().data(), DType::f32, shape, &device};
      weights.parameters[p.whole] = shape.rank() == 2 ? Parameter{weight_of(tensor), {}} : Parameter{{}, tensor};
      trainable[p.whole] = static_cast<int>(sums.size());
      sums.push_back({gradients.back().data(), DType::f32, shape, &device});
    }
    if (spec.tied_head && shard.first() && shard.last()) lookup.resize(values.front().size());
  }

  Sums make_sums(Device& device) {
    return lookup.empty() ? Sums(sums) : Sums(sums, {lookup.data(), DType::f32, sums.front().shape, &device});
  }
};

// Adds up what tensor-parallel ranks have of a parameter's gradient: of what each has, or of rows that some of them
// have.
inline void sum_over_sharers(const spec::HeldParameter& p, const comm::Group& tp, Values& gradient) {
  if (p.placement == spec::TensorPlacement::partial) tp.all_reduce(std::span(gradient), comm::ReduceOp::sum);
  if (p.copied.ranks == 1) return;
  const std::vector<Values> all = tp.gather(std::span<const float>(gradient));
  const auto first = static_cast<size_t>(tp.rank() / p.copied.ranks * p.copied.ranks);
  for (auto i = static_cast<size_t>(p.copied.begin * p.slice.columns.count()); i < gradient.size(); ++i) {
    gradient[i] = 0;
    for (size_t rank = first; rank < first + static_cast<size_t>(p.copied.ranks); ++rank) gradient[i] += all[rank][i];
  }
}

}  // namespace ingot::models
