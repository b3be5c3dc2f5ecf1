#include "backend/cpu/simd/rope.h"

#include "backend/cpu/simd/simd.h"

namespace ingot::cpu::INGOT_SIMD_LEVEL {
namespace {

constexpr int64_t chunk = 64;  // pairs whose sines and cosines are kept at a time

// With the C library, for levels without a fused multiply-add and for angles beyond the range of sincos_lanes.
void sincos_each(float* sine, float* cosine, const float* angles, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    sine[i] = __builtin_sinf(angles[i]);
    cosine[i] = __builtin_cosf(angles[i]);
  }
}

#if defined(__AVX2__) || defined(__aarch64__)
constexpr float largest_angle = 0x1p21F;

// Within 1.5e-7 (absolute) for |a| <= largest_angle. a - n pi/2 with pi/2 in three parts (Cody and Waite 1980): the
// first fused step is exact, since both terms are multiples of 2^-23 and the difference is below 1. The polynomials in
// r^2 are minimax on |r| <= pi/4 (errors below 1e-8, computed by Lawson's iteration).
INGOT_INLINE void sincos_lanes(Floats a, Floats& sine, Floats& cosine) {
  constexpr float magic = 0x1.8p23F;  // adding it leaves the nearest integer in the low bits
  const Floats shifted = fma(a, splat(0x1.45f306p-1F), splat(magic));
  const Floats n = shifted - magic;
  Floats r = fma(n, splat(-0x1.921fb6p0F), a);
  r = fma(n, splat(0x1.777a5cp-25F), r);
  r = fma(n, splat(0x1.ee59dap-50F), r);
  const Floats square = r * r;
  Floats s = fma(splat(-0.00019587959F), square, splat(0.008332749F));
  s = fma(s, square, splat(-0.16666664F));
  s = fma(s * square, r, r);
  Floats c = fma(splat(2.454799e-05F), square, splat(-0.0013888304F));
  c = fma(c, square, splat(0.041666664F));
  c = fma(c * square, square, fma(square, splat(-0.5F), splat(1.0F)));
  // Quadrant 0: (s, c), 1: (c, -s), 2: (-s, -c), 3: (-c, s).
  const Words quadrant = words(shifted);
  const Words odd = Words{} - (quadrant & 1U);
  const Words sine_sign = (quadrant & 2U) << 30;
  const Words cosine_sign = ((quadrant + 1U) & 2U) << 30;
  sine = floats(((words(c) & odd) | (words(s) & ~odd)) ^ sine_sign);
  cosine = floats(((words(s) & odd) | (words(c) & ~odd)) ^ cosine_sign);
}

void sincos(float* sine, float* cosine, const float* angles, int64_t count) {
  for (int64_t i = 0; i < count; i += lanes) {  // the arrays' lengths are multiples of `lanes`
    const Floats a = load(angles + i, AllLanes{});
    const Floats magnitude = max(a, -a);
    if (reduce_max(magnitude) <= largest_angle) {
      Floats s;
      Floats c;
      sincos_lanes(a, s, c);
      store(sine + i, s, AllLanes{});
      store(cosine + i, c, AllLanes{});
    } else {
      sincos_each(sine + i, cosine + i, angles + i, lanes);
    }
  }
}
#else
void sincos(float* sine, float* cosine, const float* angles, int64_t count) {
  sincos_each(sine, cosine, angles, count);
}
#endif

template <class T>
void rotate(T* y, const T* x, const int32_t* positions, const float* frequencies, int64_t rows, int64_t heads,
            int64_t head_dim, int64_t pairs, bool inverse) {
  for (int64_t t = 0; t < rows; ++t) {
    const auto position = static_cast<float>(positions[t]);
    for (int64_t begin = 0; begin < pairs; begin += chunk) {
      const int64_t count = pairs - begin < chunk ? pairs - begin : chunk;
      float angles[chunk] = {};
      float sine[chunk];
      float cosine[chunk];
      for (int64_t i = 0; i < count; ++i) angles[i] = position * frequencies[begin + i];
      sincos(sine, cosine, angles, count);
      if (inverse) {
        for (int64_t i = 0; i < count; ++i) sine[i] = -sine[i];
      }
      for (int64_t h = 0; h < heads; ++h) {
        const int64_t at = (t * heads + h) * head_dim + begin;
        for_each_vector(0, count, [&](int64_t i, auto extent) {
          const Floats low = load(x + at + i, extent);
          const Floats high = load(x + at + pairs + i, extent);
          const Floats s = load(sine + i, extent);
          const Floats c = load(cosine + i, extent);
          store(y + at + i, fma(low, c, -(high * s)), extent);
          store(y + at + pairs + i, fma(high, c, low * s), extent);
        });
      }
    }
    if (y == x || head_dim == 2 * pairs) continue;
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t at = (t * heads + h) * head_dim + 2 * pairs;
      __builtin_memcpy(y + at, x + at, static_cast<size_t>(head_dim - 2 * pairs) * sizeof(T));
    }
  }
}

}  // namespace

const RopeKernels rope_kernels = {{rotate<float>, rotate<Bf16>, rotate<F16>}};

}  // namespace ingot::cpu::INGOT_SIMD_LEVEL
