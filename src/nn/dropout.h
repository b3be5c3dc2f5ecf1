// Dropout of an adapter's input, in training only.
#pragma once

#include "nn/pass.h"
#include "ops/elementwise.h"

namespace ingot::nn {

inline bool drops(const Pass& pass, const Adapter& adapter) { return pass.training && adapter.dropout > 0; }

// Of the layer with weight `parameter`. Every use of dropout in a step has a random stream of its own, derived from the
// step and the parameter.
inline ops::DropoutAttributes dropout_attributes(const Pass& pass, const Adapter& adapter, size_t parameter) {
  const Training& training = *pass.training;
  return {adapter.dropout, training.dropout_seed, (training.step << 20) + parameter};
}

}  // namespace ingot::nn
