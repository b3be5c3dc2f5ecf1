// What the op-table cases of linear layers share: types of activations and weights, and how values are rounded.
#pragma once

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/half.h"
#include "ops/testing/op_table.h"
#include "tensor/weight.h"

namespace ingot::ops::testing {

// Types of weights.
inline constexpr StorageType linear_storages[] = {
    StorageType::f32,  StorageType::bf16, StorageType::f16,  StorageType::q8_0, StorageType::q4_0,    StorageType::q4_1,
    StorageType::q5_0, StorageType::q5_1, StorageType::q4_k, StorageType::q6_k, StorageType::fp8_e4m3};

// Types of a result and of the operand that is not the weight. The backward has none in f16.
inline constexpr std::pair<DType, DType> linear_types[] = {{DType::f32, DType::f32},
                                                           {DType::f32, DType::bf16},
                                                           {DType::bf16, DType::bf16},
                                                           {DType::f32, DType::f16},
                                                           {DType::f16, DType::f16}};

// `value` rounded to fp32, then to `dtype`: f32, bf16 or f16.
inline double rounded_to(DType dtype, double value) {
  const float single = static_cast<float>(value);
  switch (dtype) {
    case DType::bf16: return static_cast<double>(bf16_to_float(float_to_bf16(single)));
    case DType::f16: return static_cast<double>(f16_to_float(float_to_f16(single)));
    default: return static_cast<double>(single);
  }
}

// A row rounded to int8 in blocks of 32, decoded again. In fp32, as ops/linear_int8.h defines it.
inline void round_to_int8(double* row, int64_t n) {
  for (int64_t begin = 0; begin < n; begin += 32) {
    float largest = 0;
    for (int64_t i = begin; i < begin + 32; ++i) largest = std::max(largest, std::abs(static_cast<float>(row[i])));
    const bool tiny = largest < std::ldexp(1.0F, -121);
    const float inverse = tiny ? 0.0F : 127.0F / largest, scale = tiny ? 0.0F : largest / 127.0F;
    for (int64_t i = begin; i < begin + 32; ++i) {
      row[i] = std::nearbyint(static_cast<double>(static_cast<float>(row[i]) * inverse)) * static_cast<double>(scale);
    }
  }
}

// The case `c` of a forward op that accumulates in its operand 0, with a residual (LinearAttributes) as another operand
// instead, to which the same is added. run(context, arguments, residual) is the op.
template <class Run>
OpCase with_residual(OpCase c, Run run) {
  const size_t place = c.operands.size();
  c.name += " of a residual";
  c.operands[0].role = Role::output;
  c.operands.push_back({"residual", c.operands[0].dtype, c.operands[0].shape});
  c.run = [=](ops::Context& context, const Arguments& a) { run(context, a, a[place]); };
  c.reference = [=, accumulated = c.reference](Values& v, Conditions& conditions) {
    v[0] = v[place];
    accumulated(v, conditions);
  };
  return c;
}

}  // namespace ingot::ops::testing
