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

GPU_FN float not_a_number() { return bits_of<float>(0x7fc00000); }

GPU_FN float to_float(float value) { return value; }
GPU_FN float to_float(Bf16 value) { return bits_of<float>(static_cast<uint32_t>(value.bits) << 16); }

GPU_FN float to_float(F16 value) { return f16_value(value.bits); }

template <class T>
struct FromFloat;
template <>
struct FromFloat<float> {
  GPU_FN static float of(float value) { return value; }
};
template <>
struct FromFloat<Bf16> {  // rounds to nearest, ties to even; NaN stays NaN
  GPU_FN static Bf16 of(float value) {
    const uint32_t bits = bits_of<uint32_t>(value);
    const uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
    const uint32_t nan = (bits >> 16) | 0x40U;
    return {static_cast<uint16_t>((bits & 0x7fffffffU) > 0x7f800000U ? nan : rounded)};
  }
};
template <>
struct FromFloat<F16> {
  GPU_FN static F16 of(float value) { return {f16_bits(value)}; }
};
template <class T>
GPU_FN T from_float(float value) {
  return FromFloat<T>::of(value);
}

// N adjacent elements of one type that are loaded and stored together: aligned to their total size, at most 16 bytes.
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
// Number of elements of T in 16 bytes.
template <class T>
inline constexpr int pack_elements = 16 / static_cast<int>(sizeof(T));

// The first `count` elements from an address of any alignment, at most as many as fit in 16 bytes; the rest is zeros.
template <class T>
GPU_FN Bytes16 load_first(const T* from, int64_t count) {
  constexpr int of_word = 4 / static_cast<int>(sizeof(T));
  Bytes16 value = {};
  GPU_UNROLL
  for (int i = 0; i < pack_elements<T>; ++i) {
    if (i < count) value.at[i / of_word] |= static_cast<uint32_t>(from[i]) << (i % of_word * 32 / of_word);
  }
  return value;
}

// V adjacent elements as fp32. They are loaded from and stored as any element type, at most 16 bytes at a time.
template <int V>
struct Floats {
  float at[V];
};
template <int V, class T>
GPU_FN Floats<V> load_floats(const T* address) {
  constexpr int step = V < pack_elements<T> ? V : pack_elements<T>;
  Floats<V> values;
  for (int begin = 0; begin < V; begin += step) {
    const auto pack = load_pack<T, step>(address + begin);
    for (int i = 0; i < step; ++i) values.at[begin + i] = to_float(pack.at[i]);
  }
  return values;
}
template <int V, class T>
GPU_FN void store_floats(T* address, const Floats<V>& values) {
  constexpr int step = V < pack_elements<T> ? V : pack_elements<T>;
  for (int begin = 0; begin < V; begin += step) {
    Pack<T, step> pack;
    for (int i = 0; i < step; ++i) pack.at[i] = from_float<T>(values.at[begin + i]);
    store_pack<T, step>(address + begin, pack);
  }
}

// to[at], ... = addend[at], ... + values, or the values where `addend` is null. Both are f32, or both T. Summed in
// fp32, rounded once.
template <class T, int V>
GPU_FN void store_sum(void* to, const void* addend, bool f32, int64_t at, Floats<V> values) {
  const auto store = [&](auto* address, const auto* before) {
    if (addend != nullptr) {
      const auto added = load_floats<V>(before);
      GPU_UNROLL
      for (int i = 0; i < V; ++i) values.at[i] = added.at[i] + values.at[i];
    }
    store_floats(address, values);
  };
  if (f32) {
    store(static_cast<float*>(to) + at, static_cast<const float*>(addend) + at);
  } else {
    store(static_cast<T*>(to) + at, static_cast<const T*>(addend) + at);
  }
}

}  // namespace ingot::gpu::GPU_TARGET
#endif
