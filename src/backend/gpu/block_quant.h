// Elements of weights of any storage, for kernels: tensor/block_quant.h has the formats and says what is exact.
#pragma once

#include "backend/gpu/number.h"

namespace ingot::gpu {

// The values of Storage, fp8 aside (fp8.h).
enum class Stored : int32_t { f32, bf16, f16, q8_0, q4_0, q4_1, q5_0, q5_1, q4_k, q6_k };

}  // namespace ingot::gpu

#if GPU_KERNEL_PASS
namespace ingot::gpu::GPU_TARGET {

// N bytes, little-endian in words, from an address that is a multiple of A.
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

// q - middle for 0 <= q < 256, without the conversion that devices are slow at: 2^23 + q has q in its lowest bits.
GPU_FN float small_float(uint32_t q, int middle) {
  return bits_of<float>(0x4b000000U | q) - (8388608.0F + static_cast<float>(middle));
}

// In the blocks below `first` is a multiple of V, which is 1, 4 or 8, and A (1, 2, 4, ...) divides the block's address.

// V elements of a block of 32: d (nibble + fifth bit - middle), plus m when there is one. Element j is the low nibble
// of byte j, or the high nibble of byte j - 16.
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
    values.at[i] = d * small_float(q, middle);
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
    values.at[i] = d * small_float((quants.at[i / 4] >> (i % 4 * 8) & 255) ^ 128, 128);
  }
  return values;
}

template <int V, int A>
GPU_FN Floats<V> q4_k_block(const uint8_t* block, int first) {
  const int j = first / 32;  // the sub-block; its 6-bit scale and minimum lie in 12 bytes
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
  // Shared by two sub-blocks: low and high nibbles.
  const auto quants = read_bytes<V, A>(block + 16 + j / 2 * 32 + first % 32);
  Floats<V> values;
  GPU_UNROLL
  for (int i = 0; i < V; ++i) {
    values.at[i] = d * small_float(quants.at[i / 4] >> (i % 4 * 8 + j % 2 * 4) & 15, 0) - m;
  }
  return values;
}

template <int V, int A>
GPU_FN Floats<V> q6_k_block(const uint8_t* block, int first) {
  const int half = first / 128;
  const int quarter = first % 128 / 32;  // 32 elements: a nibble of `low`, two bits of `high`
  const int place = first % 32;
  const auto low = read_bytes<V, A>(block + 64 * half + quarter % 2 * 32 + place);
  const auto high = read_bytes<V, A>(block + 128 + 32 * half + place);
  const auto scale = static_cast<int8_t>(block[192 + first / 16]);
  const float d = half_at<A>(block + 208) * static_cast<float>(scale);
  Floats<V> values;
  GPU_UNROLL
  for (int i = 0; i < V; ++i) {
    const uint32_t q =
        (low.at[i / 4] >> (i % 4 * 8 + quarter / 2 * 4) & 15) | (high.at[i / 4] >> (i % 4 * 8 + quarter * 2) & 3) << 4;
    values.at[i] = d * small_float(q, 32);
  }
  return values;
}

// What a row is made of: a block, or 8 elements of a plain type.
template <Stored S>
inline constexpr int unit_elements = S == Stored::q4_k || S == Stored::q6_k ? 256
                                     : S < Stored::q8_0                     ? 8
                                                                            : 32;
template <Stored S>
inline constexpr int unit_bytes = S == Stored::f32                        ? 32
                                  : S == Stored::bf16 || S == Stored::f16 ? 16
                                  : S == Stored::q8_0                     ? 34
                                  : S == Stored::q4_0                     ? 18
                                  : S == Stored::q4_1                     ? 20
                                  : S == Stored::q5_0                     ? 22
                                  : S == Stored::q5_1                     ? 24
                                  : S == Stored::q4_k                     ? 144
                                                                          : 210;

// V elements of a unit from `first` on, a multiple of V. A divides the unit's address; plain types are aligned to their
// packs of V.
template <Stored S, int V, int A>
GPU_FN Floats<V> decode_unit(const uint8_t* unit, int first) {
  if constexpr (S == Stored::f32) return load_floats<V>(reinterpret_cast<const float*>(unit) + first);
  if constexpr (S == Stored::bf16) return load_floats<V>(reinterpret_cast<const Bf16*>(unit) + first);
  if constexpr (S == Stored::f16) return load_floats<V>(reinterpret_cast<const F16*>(unit) + first);
  if constexpr (S == Stored::q8_0) return q8_0_block<V, A>(unit, first);
  if constexpr (S == Stored::q4_0) return small_block<V, A, false, false>(unit, first);
  if constexpr (S == Stored::q4_1) return small_block<V, A, false, true>(unit, first);
  if constexpr (S == Stored::q5_0) return small_block<V, A, true, false>(unit, first);
  if constexpr (S == Stored::q5_1) return small_block<V, A, true, true>(unit, first);
  if constexpr (S == Stored::q4_k) return q4_k_block<V, A>(unit, first);
  if constexpr (S == Stored::q6_k) return q6_k_block<V, A>(unit, first);
}

template <Stored S, int V, int A>
GPU_FN Floats<V> decode_at(const void* data, int64_t at) {
  constexpr int unit = unit_elements<S>;
  return decode_unit<S, V, A>(static_cast<const uint8_t*>(data) + at / unit * unit_bytes<S>,
                              static_cast<int>(at % unit));
}

// V elements, 1, 4 or 8, from element `at`, a multiple of V, of contiguous rows of whole blocks at a multiple of A: 1,
// or 2 (blocks have an even number of bytes).
template <int V, int A = 1>
GPU_FN Floats<V> decode(Stored stored, const void* data, int64_t at) {
  switch (stored) {
    case Stored::f32: return decode_at<Stored::f32, V, A>(data, at);
    case Stored::bf16: return decode_at<Stored::bf16, V, A>(data, at);
    case Stored::f16: return decode_at<Stored::f16, V, A>(data, at);
    case Stored::q8_0: return decode_at<Stored::q8_0, V, A>(data, at);
    case Stored::q4_0: return decode_at<Stored::q4_0, V, A>(data, at);
    case Stored::q4_1: return decode_at<Stored::q4_1, V, A>(data, at);
    case Stored::q5_0: return decode_at<Stored::q5_0, V, A>(data, at);
    case Stored::q5_1: return decode_at<Stored::q5_1, V, A>(data, at);
    case Stored::q4_k: return decode_at<Stored::q4_k, V, A>(data, at);
    case Stored::q6_k: return decode_at<Stored::q6_k, V, A>(data, at);
  }
  return {};
}

}  // namespace ingot::gpu::GPU_TARGET

#else

#include "backend/gpu/launch.h"
#include "base/error.h"
#include "tensor/weight.h"

namespace ingot::gpu {

static_assert(static_cast<int>(Stored::f32) == static_cast<int>(Storage::f32) &&
              static_cast<int>(Stored::bf16) == static_cast<int>(Storage::bf16) &&
              static_cast<int>(Stored::f16) == static_cast<int>(Storage::f16) &&
              static_cast<int>(Stored::q8_0) == static_cast<int>(Storage::q8_0) &&
              static_cast<int>(Stored::q4_0) == static_cast<int>(Storage::q4_0) &&
              static_cast<int>(Stored::q4_1) == static_cast<int>(Storage::q4_1) &&
              static_cast<int>(Stored::q5_0) == static_cast<int>(Storage::q5_0) &&
              static_cast<int>(Stored::q5_1) == static_cast<int>(Storage::q5_1) &&
              static_cast<int>(Stored::q4_k) == static_cast<int>(Storage::q4_k) &&
              static_cast<int>(Stored::q6_k) == static_cast<int>(Storage::q6_k));
inline Stored stored_as(const Weight& weight) {
  if (is_fp8(weight.storage)) throw_error(ErrorKind::internal, "{} weights are decoded by rows", name(weight.storage));
  return static_cast<Stored>(weight.storage);
}

// The kernel that decodes rows of `weight` to rows of `out`.
template <class Args>
const Kernel<Args>& of_decoded(const KernelPacks<Args>& kernels, const Tensor& out, const Weight& weight) {
  const Tensor plain = is_block(weight.storage) ? Tensor{} : weight.tensor();
  return of_rows(kernels, weight.in, {out, plain});
}

}  // namespace ingot::gpu
#endif
