// Element types of kernels, and loads and stores of several elements at once. Kernel passes only.
#pragma once

#include "backend/gpu/gpu.h"

#if GPU_KERNEL_PASS
namespace ingot::gpu::GPU_TARGET {

template <class To, class From>
GPU_FN To bits_of(From value) {
  static_assert(sizeof(To) == sizeof(From));
  return __builtin_bit_cast(To, value);
}

// bf16 is the upper half of an fp32.
struct Bf16 {
  uint16_t bits;
};

GPU_FN float to_float(float value) { return value; }
GPU_FN float to_float(Bf16 value) { return bits_of<float>(static_cast<uint32_t>(value.bits) << 16); }

template <class T>
struct FromFloat;
template <>
struct FromFloat<float> {
  GPU_FN static float of(float value) { return value; }
};
template <>
struct FromFloat<Bf16> {  // to nearest, ties to even; NaN stays one
  GPU_FN static Bf16 of(float value) {
    const uint32_t bits = bits_of<uint32_t>(value);
    const uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
    const uint32_t nan = (bits >> 16) | 0x40U;
    return {static_cast<uint16_t>((bits & 0x7fffffffU) > 0x7f800000U ? nan : rounded)};
  }
};
template <class T>
GPU_FN T from_float(float value) {
  return FromFloat<T>::of(value);
}

// N neighbours of one type, moved as one: aligned to their size, 16 bytes at most.
template <class T, int N>
struct alignas(sizeof(T) * N) Pack {
  static_assert(sizeof(T) * N <= 16);
  T at[N];
};
template <class T, int N>
GPU_FN Pack<T, N> load_pack(const T* address) {
  return *reinterpret_cast<const Pack<T, N>*>(address);
}
template <class T, int N>
GPU_FN void store_pack(T* address, const Pack<T, N>& pack) {
  *reinterpret_cast<Pack<T, N>*>(address) = pack;
}
// Elements of T that 16 bytes hold.
template <class T>
inline constexpr int pack_elements = 16 / static_cast<int>(sizeof(T));

}  // namespace ingot::gpu::GPU_TARGET
#endif
