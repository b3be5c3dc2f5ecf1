#include "backend/cpu/simd/elementwise.h"

#include "backend/cpu/simd/blocks.h"
#include "backend/cpu/simd/simd.h"

namespace ingot::cpu::INGOT_SIMD_LEVEL {
namespace {

template <class T>
void add(T* y, const T* a, const T* b, int64_t n) {
  for_each_vector(0, n,
                  [&](int64_t i, auto extent) { store(y + i, load(a + i, extent) + load(b + i, extent), extent); });
}

template <class Y, class X>
void scale(Y* y, const X* x, float factor, int64_t n) {
  for_each_vector(0, n, [&](int64_t i, auto extent) { store(y + i, load(x + i, extent) * factor, extent); });
}

template <class T, class X>
void add_to(T* y, const X* x, int64_t n) {
  for_each_vector(0, n,
                  [&](int64_t i, auto extent) { store(y + i, load(y + i, extent) + load(x + i, extent), extent); });
}

template <class T>
void sum_rows(float* total, const T* dy, int64_t rows, int64_t n, int64_t stride, bool accumulate) {
  for_each_vector(0, n, [&](int64_t i, auto extent) {
    Floats column = accumulate ? load(total + i, extent) : Floats{};
    for (int64_t row = 0; row < rows; ++row) column += load(dy + row * stride + i, extent);
    store(total + i, column, extent);
  });
}

typedef uint64_t Longs __attribute__((vector_size(8 * lanes)));

// Philox4x32-10 (base/philox.h) for `lanes` consecutive blocks.
INGOT_INLINE void philox(Words& c0, Words& c1, Words& c2, Words& c3, uint32_t k0, uint32_t k1) {
  for (int round = 0; round < 10; ++round) {
    const Longs p0 = __builtin_convertvector(c0, Longs) * uint64_t{0xD2511F53};
    const Longs p1 = __builtin_convertvector(c2, Longs) * uint64_t{0xCD9E8D57};
    c0 = __builtin_convertvector(p1 >> 32, Words) ^ c1 ^ k0;
    c1 = __builtin_convertvector(p1, Words);
    c2 = __builtin_convertvector(p0 >> 32, Words) ^ c3 ^ k1;
    c3 = __builtin_convertvector(p0, Words);
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
}

template <class T>
void dropout(T* y, const T* x, int64_t n, DropoutRow row) {
  Words block;
  for (int i = 0; i < lanes; ++i) block[i] = row.first_block + static_cast<uint32_t>(i);
  for (int64_t begin = 0; begin < n; begin += 4 * lanes, block += static_cast<uint32_t>(lanes)) {
    Words words_of[4] = {Words{} + row.counter[0], Words{} + row.counter[1], block, Words{} + row.counter[2]};
    philox(words_of[0], words_of[1], words_of[2], words_of[3], row.key[0], row.key[1]);
    uint32_t keep[4 * lanes];  // all ones if kept, in order of elements
    for (int word = 0; word < 4; ++word) {
      const Words kept = (Words)((words_of[word] >> 8) >= row.drop_below);
      for (int i = 0; i < lanes; ++i) keep[4 * i + word] = kept[i];
    }
    const int64_t end = n - begin < 4 * lanes ? n : begin + 4 * lanes;
    for_each_vector(begin, end, [&](int64_t i, auto extent) {
      Words mask;
      __builtin_memcpy(&mask, keep + (i - begin), sizeof mask);
      store(y + i, floats(words(load(x + i, extent) * row.factor) & mask), extent);
    });
  }
}

template <class T>
void clamp(T* y, const T* x, float limit, int64_t n) {
  const Floats high = splat(limit);
  const Floats low = splat(-limit);
  for_each_vector(0, n,
                  [&](int64_t i, auto extent) { store(y + i, max(low, min(high, load(x + i, extent))), extent); });
}

template <class T>
void clamp_backward(T* dx, const T* dy, const T* x, float limit, int64_t n) {
  for_each_vector(0, n, [&](int64_t i, auto extent) {
    const Floats value = load(x + i, extent);
    store(dx + i, max(value, -value) <= limit ? load(dy + i, extent) : Floats{}, extent);
  });
}

template <class T>
void softcap(T* y, const T* x, float cap, int64_t n) {
  const float inverse = 1.0F / cap;
  for_each_vector(
      0, n, [&](int64_t i, auto extent) { store_computed(y + i, tanh(load(x + i, extent) * inverse) * cap, extent); });
}

template <class T>
void softcap_backward(T* dx, const T* dy, const T* y, float cap, int64_t n) {
  const float inverse = 1.0F / cap;
  for_each_vector(0, n, [&](int64_t i, auto extent) {
    const Floats tanh_x = load(y + i, extent) * inverse;
    store_computed(dx + i, load(dy + i, extent) * fma(-tanh_x, tanh_x, splat(1.0F)), extent);
  });
}

using BlocksToBf16 = void(Bf16* y, const void* blocks, int64_t n);
#if defined(__AVX512BF16__)
template <class Block>
void blocks_to_bf16(Bf16* y, const void* blocks, int64_t n) {
  const auto* from = static_cast<const unsigned char*>(blocks);
  for (int64_t i = 0; i < n; i += block_elements, from += Block::bytes) _mm512_storeu_si512(y + i, Block::decode(from));
}
constexpr BlocksToBf16* q8_to_bf16 = blocks_to_bf16<Q8Block>;
constexpr BlocksToBf16* q4_to_bf16 = blocks_to_bf16<Q4Block>;
#else
constexpr BlocksToBf16* q8_to_bf16 = nullptr;
constexpr BlocksToBf16* q4_to_bf16 = nullptr;
#endif

}  // namespace

const ElementwiseKernels elementwise_kernels = {
    {add<float>, add<Bf16>, add<F16>},
    {scale<float, float>, scale<float, Bf16>, scale<float, F16>},
    {scale<Bf16, float>, scale<Bf16, Bf16>, scale<Bf16, F16>},
    {scale<F16, float>, scale<F16, Bf16>, scale<F16, F16>},
    q8_to_bf16,
    q4_to_bf16,
    add_to<float, Bf16>,
    {add_to<float, float>, add_to<Bf16, float>, add_to<F16, float>},
    sum_rows<float>,
    sum_rows<Bf16>,
    dropout<float>,
    dropout<Bf16>,
    {clamp<float>, clamp<Bf16>, clamp<F16>},
    clamp_backward<float>,
    clamp_backward<Bf16>,
    {softcap<float>, softcap<Bf16>, softcap<F16>},
    softcap_backward<float>,
    softcap_backward<Bf16>,
};

}  // namespace ingot::cpu::INGOT_SIMD_LEVEL
