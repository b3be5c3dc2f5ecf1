// What the op-table cases of linear and grouped_linear share: types of activations and weights.
#pragma once

#include <utility>

#include "base/half.h"
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

}  // namespace ingot::ops::testing
