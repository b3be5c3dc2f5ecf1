// What the glue between an op and its kernels needs: typed addresses and the pool.
#pragma once

#include "backend/cpu/simd/levels.h"
#include "base/half.h"
#include "base/thread_pool.h"
#include "ops/context.h"
#include "tensor/tensor.h"

namespace ingot::cpu {

inline Bf16* bf16(const Tensor& tensor) { return reinterpret_cast<Bf16*>(tensor.as<uint16_t>()); }
inline F16* f16(const Tensor& tensor) { return reinterpret_cast<F16*>(tensor.as<uint16_t>()); }

// Elements a slice of element-wise work: large enough to be worth a thread, small enough to balance.
constexpr int64_t element_grain = 16384;
// Rows a slice, for rows of `width` elements.
inline int64_t row_grain(int64_t width) { return std::max<int64_t>(1, element_grain / std::max<int64_t>(1, width)); }

// One element of an f32, bf16 or f16 tensor, for the reference implementations.
inline double element(const Tensor& tensor, int64_t i) {
  if (tensor.dtype == DType::f32) return static_cast<double>(tensor.as<float>()[i]);
  const uint16_t bits = tensor.as<uint16_t>()[i];
  return static_cast<double>(tensor.dtype == DType::bf16 ? bf16_to_float(bits) : f16_to_float(bits));
}
inline void set_element(const Tensor& tensor, int64_t i, double value) {
  const float rounded = static_cast<float>(value);
  if (tensor.dtype == DType::f32) {
    tensor.as<float>()[i] = rounded;
  } else {
    tensor.as<uint16_t>()[i] = tensor.dtype == DType::bf16 ? float_to_bf16(rounded) : float_to_f16(rounded);
  }
}

}  // namespace ingot::cpu
