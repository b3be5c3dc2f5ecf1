// Conversion of elements to another type: rows of a weight of any storage to activations.
#pragma once

#include <type_traits>

#include "backend/cpu/glue.h"
#include "backend/cpu/simd/elementwise.h"
#include "tensor/weight.h"

namespace ingot::cpu {

// y = factor x.
template <class Y, class X>
auto* scale_kernel(const ElementwiseKernels& kernels) {
  if constexpr (std::is_same_v<Y, float>) return of_type<X>(kernels.scale_to_f32);
  if constexpr (std::is_same_v<Y, Bf16>) return of_type<X>(kernels.scale_to_bf16);
  if constexpr (std::is_same_v<Y, F16>) return of_type<X>(kernels.scale_to_f16);
}

// Whether the weight is stored as elements of `dtype`, so that it needs no decoding.
inline bool in_place(const Weight& weight, DType dtype) {
  return is_plain(weight.storage) && weight.tensor().dtype == dtype;
}

// Decodes row `row` of `weight` to `out`, which has elements of f32, bf16 or f16; rounded once.
void decode_row(const ElementwiseKernels& kernels, const Weight& weight, int64_t row, void* out, DType dtype);

}  // namespace ingot::cpu
