// Helpers between an op and its kernels: typed addresses and grain sizes for the thread pool.
#pragma once

#include <type_traits>

#include "backend/cpu/simd/levels.h"
#include "base/error.h"
#include "base/half.h"
#include "base/thread_pool.h"
#include "ops/context.h"
#include "tensor/tensor.h"
#include "tensor/weight.h"

namespace ingot::cpu {

template <class T>
T* elements(const Tensor& tensor) {
  return reinterpret_cast<T*>(tensor.as<uint16_t>());
}
template <>
inline float* elements<float>(const Tensor& tensor) {
  return tensor.as<float>();
}
inline Bf16* bf16(const Tensor& tensor) { return elements<Bf16>(tensor); }

// Calls body.operator()<T>() for the element type f32, bf16 or f16.
template <class Body>
void by_type(DType dtype, Body body) {
  switch (dtype) {
    case DType::f32: return body.template operator()<float>();
    case DType::bf16: return body.template operator()<Bf16>();
    case DType::f16: return body.template operator()<F16>();
    default: throw_error(ErrorKind::internal, "no kernel for elements of type {}", name(dtype));
  }
}

template <class T, template <class> class Form>
Form<T>* of_type(const ForTypes<Form>& kernels) {
  if constexpr (std::is_same_v<T, float>) return kernels.f32;
  if constexpr (std::is_same_v<T, Bf16>) return kernels.bf16;
  if constexpr (std::is_same_v<T, F16>) return kernels.f16;
}

// Elements per slice of element-wise work: large enough to be worth a thread, small enough to balance.
constexpr int64_t element_grain = 16384;
// Rows per slice, for rows of `width` elements.
inline int64_t row_grain(int64_t width) { return std::max<int64_t>(1, element_grain / std::max<int64_t>(1, width)); }

// Rows of a weight [out, in] per slice of a skinny gemm, a multiple of the rows of a tile. With few tokens, when memory
// is read as fast as it can be, slices are as long as leaves four for each thread, but at most a mebibyte; with many
// tokens whose copies each slice makes (`copies_tokens`, simd/widened_gemm.h), at most 192 rows. Then they are up to
// half as long where the thread that has most of them has fewer rows.
inline int64_t weight_row_grain(int64_t out, int64_t in, size_t row_bytes, int64_t tokens, int threads,
                                bool copies_tokens) {
  constexpr int64_t whole_tiles = 48, many_tokens = 64, many_tokens_rows = 192;
  int64_t wanted = std::max(row_grain(in), (out + 63) / 64);
  const bool is_long = tokens <= 2 || (copies_tokens && tokens >= many_tokens);
  if (is_long) {
    const int64_t mebibyte = (int64_t{1} << 20) / std::max<int64_t>(1, static_cast<int64_t>(row_bytes));
    const int64_t slices = 4 * static_cast<int64_t>(threads);
    const int64_t max_rows = tokens <= 2 ? mebibyte : many_tokens_rows;
    wanted = std::max(row_grain(in), std::min((out + slices - 1) / slices, max_rows));
  }
  const int64_t longest = (wanted + whole_tiles - 1) / whole_tiles * whole_tiles;
  int64_t grain = longest;
  if (is_long) {
    const auto max_thread_rows = [&](int64_t rows) { return ((out + rows - 1) / rows + threads - 1) / threads * rows; };
    for (int64_t rows = longest - whole_tiles; rows >= longest / 2 && rows > 0; rows -= whole_tiles) {
      if (max_thread_rows(rows) < max_thread_rows(grain)) grain = rows;
    }
  }
  return grain;
}

// The rows of several weights of equal width, one weight after the other.
inline int64_t num_rows(std::span<const Weight> weights) {
  int64_t rows = 0;
  for (const Weight& weight : weights) rows += weight.out;
  return rows;
}
// Calls body(i, lo, hi) for the rows of each weight i that are among rows [lo, hi) of all.
template <class Body>
void for_each_weight(std::span<const Weight> weights, int64_t lo, int64_t hi, Body body) {
  int64_t first = 0;
  for (size_t i = 0; i < weights.size(); first += weights[i].out, ++i) {
    const int64_t from = std::max(lo, first), to = std::min(hi, first + weights[i].out);
    if (from < to) body(i, from - first, to - first);
  }
}

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
