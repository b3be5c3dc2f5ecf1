// Dequantization in kernels, for every StorageType but fp8. tensor/block_quant.h documents the formats and which
// results are exact.
#pragma once

#include "backend/gpu/number.h"

namespace ingot::gpu {

// The values of StorageType except fp8 (see fp8.h).
enum class QuantFormat : int32_t { f32, bf16, f16, q8_0, q4_0, q4_1, q5_0, q5_1, q4_k, q6_k };

}  // namespace ingot::gpu

#if GPU_KERNEL_PASS
namespace ingot::gpu::GPU_TARGET {

// Reads N bytes as little-endian words from an address that is a multiple of A.
template <int N, int A>
struct ByteWords {
  uint32_t at[(N + 3) / 4];
};
template <int N, int A>
GPU_FN ByteWords<N, A> read_bytes(const uint8_t* from) {
  ByteWords<N, A> words = {};
  constexpr int step = A < N ? A : N;
  GPU_UNROLL
  for (int i = 0; i < N; i += step < 4 ? step : 4) {
    uint32_t part;
    if constexpr (step >= 4) {
      part = *reinterpret_cast<const uint32_t*>(from + i);
    } else if constexpr (step == 2) {
      part = *reinterpret_cast<const uint16_t*>(from + i);
    } else {
      part = from[i];
    }
    words.at[i / 4] |= part << (i % 4 * 8);
  }
  return words;
}
template <int A>
GPU_FN float half_at(const uint8_t* bytes) {
  return to_float(F16{static_cast<uint16_t>(read_bytes<2, A>(bytes).at[0])});
}

// q - middle for 0 <= q < 256, without an int-to-float conversion, which is slow on GPUs: 2^23 + q holds q in its
// lowest bits.
GPU_FN float small_int_to_float(uint32_t q, int middle) {
  return bits_of<float>(0x4b000000U | q) - (8388608.0F + static_cast<float>(middle));
}

// In the functions below `first` is a multiple of V (1, 4 or 8), and A (1, 2, 4, ...) divides the block's address.

// V elements of a block of 32: d (q - middle), plus m with a minimum; q is a nibble with the optional fifth bit on top.
// Element j is the low nibble of byte j if j < 16, else the high nibble of byte j - 16.
template <int V, int A, bool five_bits, bool with_minimum>
GPU_FN Floats<V> small_block(const uint8_t* block, int first) {
  constexpr int middle = with_minimum ? 0 : five_bits ? 16 : 8;
  const float d = half_at<A>(block);
  const float m = with_minimum ? half_at<A>(block + 2) : 0.0F;
  const uint8_t* high = block + (with_minimum ? 4 : 2);
  const auto quants = read_bytes<V, A>(high + (five_bits ? 4 : 0) + first % 16);
  const uint32_t fifths = five_bits ? read_bytes<4, A>(high).at[0] >> first : 0;
  const int shift = first / 16 * 4;
  Floats<V> values;
  GPU_UNROLL
  for (int i = 0; i < V; ++i) {
    uint32_t q = quants.at[i / 4] >> (i % 4 * 8 + shift) & 15;
    if constexpr (five_bits) q |= (fifths >> i & 1) << 4;
    values.at[i] = d * small_int_to_float(q, middle);
    if constexpr (with_minimum) values.at[i] += m;
  }
  return values;
}

template <int V, int A>
GPU_FN Floats<V> q8_0_block(const uint8_t* block, int first) {
  const float d = half_at<A>(block);
  const auto quants = read_bytes<V, A>(block + 2 + first);
  Floats<V> values;
  GPU_UNROLL
  for (int i = 0; i < V; ++i) {
    values.at[i] = d * small_int_to_float((quants.at[i / 4] >> (i % 4 * 8) & 255) ^ 128, 128);
  }
  return values;
}

template <int V, int A>
GPU_FN Floats<V> q4_k_block(const uint8_t* block, int first) {
  const int j = first / 32;  // the sub-block; its 6-bit scale and minimum are packed into 12 bytes
  const uint8_t* packed = block + 4;
  int scale;
  int minimum;
  if (j < 4) {
    scale = packed[j] & 63;
    minimum = packed[j + 4] & 63;
  } else {
    scale = (packed[j + 4] & 15) | (packed[j - 4] >> 6) << 4;
    minimum = (packed[j + 4] >> 4) | (packed[j] >> 6) << 4;
  }
  const float d = half_at<A>(block) * static_cast<float>(scale);
  const float m = half_at<A>(block + 2) * static_cast<float>(minimum);
  // Two sub-blocks share these bytes: one has the low nibbles, the other the high ones.
  const auto quants = read_bytes<V, A>(block + 16 + j / 2 * 32 + first % 32);
  Floats<V> values;
  GPU_UNROLL
  for (int i = 0; i < V; ++i) {
    values.at[i] = d * small_int_to_float(quants.at[i / 4] >> (i % 4 * 8 + j % 2 * 4) & 15, 0) - m;
  }
  return values;
}

template <int V, int A>
GPU_FN Floats<V> q6_k_block(const uint8_t* block, int first) {
  const int half = first / 128;
  const int quarter = first % 128 / 32;  // 32 elements: a nibble of `low`, two bits of `high`
  const int offset = first % 32;
  const auto low = read_bytes<V, A>(block + 64 * half + quarter % 2 * 32 + offset);
  const auto high = read_bytes<V, A>(block + 128 + 32 * half + offset);
  const auto scale = static_cast<int8_t>(block[192 + first / 16]);
  const float d = half_at<A>(block + 208) * static_cast<float>(scale);
  Floats<V> values;
  GPU_UNROLL
  for (int i = 0; i < V; ++i) {
    const uint32_t q =
        (low.at[i / 4] >> (i % 4 * 8 + quarter / 2 * 4) & 15) | (high.at[i / 4] >> (i % 4 * 8 + quarter * 2) & 3) << 4;
    values.at[i] = d * small_int_to_float(q, 32);
  }
  return values;
}

// The storage unit of a row: a quantization block, or 8 elements of a plain type.
template <QuantFormat S>
inline constexpr int unit_elements = S == QuantFormat::q4_k || S == QuantFormat::q6_k ? 256
                                     : S < QuantFormat::q8_0                          ? 8
                                                                                      : 32;
template <QuantFormat S>
inline constexpr int unit_bytes = S == QuantFormat::f32                             ? 32
                                  : S == QuantFormat::bf16 || S == QuantFormat::f16 ? 16
                                  : S == QuantFormat::q8_0                          ? 34
                                  : S == QuantFormat::q4_0                          ? 18
                                  : S == QuantFormat::q4_1                          ? 20
                                  : S == QuantFormat::q5_0                          ? 22
                                  : S == QuantFormat::q5_1                          ? 24
                                  : S == QuantFormat::q4_k                          ? 144
                                                                                    : 210;

// V elements of a unit from `first` on, which is a multiple of V. A divides the unit's address; elements of plain types
// are aligned to V elements.
template <QuantFormat S, int V, int A>
GPU_FN Floats<V> decode_unit(const uint8_t* unit, int first) {
  if constexpr (S == QuantFormat::f32) return load_floats<V>(reinterpret_cast<const float*>(unit) + first);
  if constexpr (S == QuantFormat::bf16) return load_floats<V>(reinterpret_cast<const Bf16*>(unit) + first);
  if constexpr (S == QuantFormat::f16) return load_floats<V>(reinterpret_cast<const F16*>(unit) + first);
  if constexpr (S == QuantFormat::q8_0) return q8_0_block<V, A>(unit, first);
  if constexpr (S == QuantFormat::q4_0) return small_block<V, A, false, false>(unit, first);
  if constexpr (S == QuantFormat::q4_1) return small_block<V, A, false, true>(unit, first);
  if constexpr (S == QuantFormat::q5_0) return small_block<V, A, true, false>(unit, first);
  if constexpr (S == QuantFormat::q5_1) return small_block<V, A, true, true>(unit, first);
  if constexpr (S == QuantFormat::q4_k) return q4_k_block<V, A>(unit, first);
  if constexpr (S == QuantFormat::q6_k) return q6_k_block<V, A>(unit, first);
}

template <QuantFormat S, int V, int A>
GPU_FN Floats<V> decode_at(const void* data, int64_t at) {
  constexpr int unit = unit_elements<S>;
  return decode_unit<S, V, A>(static_cast<const uint8_t*>(data) + at / unit * unit_bytes<S>,
                              static_cast<int>(at % unit));
}

// V elements (1, 4 or 8) from element `at`, a multiple of V, of contiguous rows of whole blocks. The data's address is
// a multiple of A: 1, or 2 (blocks have an even number of bytes).
template <int V, int A = 1>
GPU_FN Floats<V> decode(QuantFormat stored, const void* data, int64_t at) {
  switch (stored) {
    case QuantFormat::f32: return decode_at<QuantFormat::f32, V, A>(data, at);
    case QuantFormat::bf16: return decode_at<QuantFormat::bf16, V, A>(data, at);
    case QuantFormat::f16: return decode_at<QuantFormat::f16, V, A>(data, at);
    case QuantFormat::q8_0: return decode_at<QuantFormat::q8_0, V, A>(data, at);
    case QuantFormat::q4_0: return decode_at<QuantFormat::q4_0, V, A>(data, at);
    case QuantFormat::q4_1: return decode_at<QuantFormat::q4_1, V, A>(data, at);
    case QuantFormat::q5_0: return decode_at<QuantFormat::q5_0, V, A>(data, at);
    case QuantFormat::q5_1: return decode_at<QuantFormat::q5_1, V, A>(data, at);
    case QuantFormat::q4_k: return decode_at<QuantFormat::q4_k, V, A>(data, at);
    case QuantFormat::q6_k: return decode_at<QuantFormat::q6_k, V, A>(data, at);
  }
  return {};
}

}  // namespace ingot::gpu::GPU_TARGET

#else

#include "backend/gpu/launch.h"
#include "base/error.h"
#include "tensor/weight.h"

namespace ingot::gpu {

static_assert(static_cast<int>(QuantFormat::f32) == static_cast<int>(StorageType::f32) &&
              static_cast<int>(QuantFormat::bf16) == static_cast<int>(StorageType::bf16) &&
              static_cast<int>(QuantFormat::f16) == static_cast<int>(StorageType::f16) &&
              static_cast<int>(QuantFormat::q8_0) == static_cast<int>(StorageType::q8_0) &&
              static_cast<int>(QuantFormat::q4_0) == static_cast<int>(StorageType::q4_0) &&
              static_cast<int>(QuantFormat::q4_1) == static_cast<int>(StorageType::q4_1) &&
              static_cast<int>(QuantFormat::q5_0) == static_cast<int>(StorageType::q5_0) &&
              static_cast<int>(QuantFormat::q5_1) == static_cast<int>(StorageType::q5_1) &&
              static_cast<int>(QuantFormat::q4_k) == static_cast<int>(StorageType::q4_k) &&
              static_cast<int>(QuantFormat::q6_k) == static_cast<int>(StorageType::q6_k));
inline QuantFormat stored_as(const Weight& weight) {
  if (is_fp8(weight.storage))
    throw_error(ErrorKind::internal, "{} weights are not block-quantised; they are decoded by rows",
                name(weight.storage));
  return static_cast<QuantFormat>(weight.storage);
}

// The kernel that decodes rows of `weight` into rows of `out`.
template <class Args>
const Kernel<Args>& of_decoded(const KernelPacks<Args>& kernels, const Tensor& out, const Weight& weight) {
  const Tensor plain = is_block(weight.storage) ? Tensor{} : weight.tensor();
  return of_rows(kernels, weight.in, {out, plain});
}

}  // namespace ingot::gpu
#endif
