// Elements of weights of any storage, for kernels: tensor/block_quant.h has the formats and says what is exact.
#pragma once

#include "backend/gpu/number.h"

namespace ingot::gpu {

enum class Stored : int32_t { f32, bf16, f16, q8_0, q4_0, q4_1, q5_0, q5_1, q4_k, q6_k };  // the values of Storage

}  // namespace ingot::gpu

#if GPU_KERNEL_PASS
namespace ingot::gpu::GPU_TARGET {

// Blocks need no alignment.
GPU_FN uint32_t two_bytes(const uint8_t* bytes) { return bytes[0] | static_cast<uint32_t>(bytes[1]) << 8; }
GPU_FN float half_at(const uint8_t* bytes) { return to_float(F16{static_cast<uint16_t>(two_bytes(bytes))}); }

// Element j of 32: low nibble of byte j, or high nibble of byte j - 16.
GPU_FN int nibble_at(const uint8_t* bytes, int j) { return j < 16 ? bytes[j] & 15 : bytes[j - 16] >> 4; }
// The fifth bit of element j of 32.
GPU_FN int fifth_bit(const uint8_t* bytes, int j) { return (bytes[j / 8] >> (j % 8) & 1) << 4; }

// V elements of a block of 32 from `first`, a multiple of V: d (nibble + fifth bit - middle), plus m when there is one.
template <int V, bool five_bits, bool with_minimum>
GPU_FN Floats<V> small_block(const uint8_t* block, int first) {
  constexpr int middle = with_minimum ? 0 : five_bits ? 16 : 8;
  const float d = half_at(block);
  const float m = with_minimum ? half_at(block + 2) : 0.0F;
  const uint8_t* high = block + (with_minimum ? 4 : 2);
  const uint8_t* quants = high + (five_bits ? 4 : 0);
  Floats<V> values;
  for (int i = 0; i < V; ++i) {
    int q = nibble_at(quants, first + i);
    if constexpr (five_bits) q |= fifth_bit(high, first + i);
    values.at[i] = d * static_cast<float>(q - middle);
    if constexpr (with_minimum) values.at[i] += m;
  }
  return values;
}

template <int V>
GPU_FN Floats<V> q8_0_block(const uint8_t* block, int first) {
  const float d = half_at(block);
  Floats<V> values;
  for (int i = 0; i < V; ++i) values.at[i] = d * static_cast<float>(static_cast<int8_t>(block[2 + first + i]));
  return values;
}

template <int V>
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
  const float d = half_at(block) * static_cast<float>(scale);
  const float m = half_at(block + 2) * static_cast<float>(minimum);
  const uint8_t* quants = block + 16 + j / 2 * 32 + first % 32;  // shared by two sub-blocks: low and high nibbles
  Floats<V> values;
  for (int i = 0; i < V; ++i) values.at[i] = d * static_cast<float>(quants[i] >> (j % 2 * 4) & 15) - m;
  return values;
}

template <int V>
GPU_FN Floats<V> q6_k_block(const uint8_t* block, int first) {
  const int half = first / 128;
  const int quarter = first % 128 / 32;  // 32 elements: a nibble of `low`, two bits of `high`
  const int place = first % 32;
  const uint8_t* low = block + 64 * half + quarter % 2 * 32 + place;
  const uint8_t* high = block + 128 + 32 * half + place;
  const auto scale = static_cast<int8_t>(block[192 + first / 16]);
  const float d = half_at(block + 208) * static_cast<float>(scale);
  Floats<V> values;
  for (int i = 0; i < V; ++i) {
    const int q = (low[i] >> (quarter / 2 * 4) & 15) | (high[i] >> (2 * quarter) & 3) << 4;
    values.at[i] = d * static_cast<float>(q - 32);
  }
  return values;
}

// V elements, 1, 4 or 8, from element `at`, a multiple of V, of contiguous rows of whole blocks.
template <int V>
GPU_FN Floats<V> decode(Stored stored, const void* data, int64_t at) {
  const auto* bytes = static_cast<const uint8_t*>(data);
  const auto in_small = static_cast<int>(at % 32);
  const auto in_large = static_cast<int>(at % 256);
  switch (stored) {
    case Stored::f32: return load_floats<V>(static_cast<const float*>(data) + at);
    case Stored::bf16: return load_floats<V>(static_cast<const Bf16*>(data) + at);
    case Stored::f16: return load_floats<V>(static_cast<const F16*>(data) + at);
    case Stored::q8_0: return q8_0_block<V>(bytes + at / 32 * 34, in_small);
    case Stored::q4_0: return small_block<V, false, false>(bytes + at / 32 * 18, in_small);
    case Stored::q4_1: return small_block<V, false, true>(bytes + at / 32 * 20, in_small);
    case Stored::q5_0: return small_block<V, true, false>(bytes + at / 32 * 22, in_small);
    case Stored::q5_1: return small_block<V, true, true>(bytes + at / 32 * 24, in_small);
    case Stored::q4_k: return q4_k_block<V>(bytes + at / 256 * 144, in_large);
    case Stored::q6_k: return q6_k_block<V>(bytes + at / 256 * 210, in_large);
  }
  return {};
}

}  // namespace ingot::gpu::GPU_TARGET

#else

#include "backend/gpu/launch.h"
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
inline Stored stored_as(const Weight& weight) { return static_cast<Stored>(weight.storage); }

// The kernel that decodes rows of `weight` to rows of `out`.
template <class Args>
const Kernel<Args>& of_decoded(const KernelPacks<Args>& kernels, const Tensor& out, const Weight& weight) {
  const Tensor plain = is_block(weight.storage) ? Tensor{} : weight.tensor();
  return of_rows(kernels, weight.in, {out, plain});
}

}  // namespace ingot::gpu
#endif
