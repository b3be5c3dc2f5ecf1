// Elementary functions for kernels, from plain fp32 operations and `fma`, so that every target computes the same bits.
// The polynomials are those of the CPU kernels (backend/cpu/simd/simd.h documents how they were fitted). Kernel passes
// only.
#pragma once

#include "backend/gpu/number.h"

#if GPU_KERNEL_PASS
namespace ingot::gpu::GPU_TARGET {

inline constexpr float magic = 0x1.8p23F;  // adding it leaves the nearest integer in the low bits

// 2^n x, by two factors, so that the multiplications themselves produce subnormal results and overflow to infinity.
GPU_FN float scale_by_power(float x, int n) {
  const int half = n >> 1;
  return x * bits_of<float>((half + 127) << 23) * bits_of<float>((n - half + 127) << 23);
}

// e^x within 2 ulp; 0 below about -104, infinity above 88.73, NaN for NaN.
GPU_FN float exponential(float x) {
  x = x > 89.0F ? 89.0F : x;
  x = x < -105.0F ? -105.0F : x;
  const float shifted = fma(x, 0x1.715476p0F, magic);
  const float n = shifted - magic;
  float r = fma(n, -0x1.62e4p-1F, x);  // the upper 13 bits of ln 2: the product is exact
  r = fma(n, -0x1.7f7d1cp-20F, r);
  float p = 0.0001991844765143469F;
  p = fma(p, r, 0.001394611899740994F);
  p = fma(p, r, 0.008333263918757439F);
  p = fma(p, r, 0.041666269302368164F);
  p = fma(p, r, 0.1666666716337204F);
  p = fma(p, r, 0.5F);
  p = fma(p * r, r, r) + 1.0F;
  return scale_by_power(p, bits_of<int>(shifted) - 0x4b400000);  // NaN: p is NaN
}

// Within 2 ulp for x > 0, subnormals included; -infinity for 0, NaN for negative x. With x = 2^e m and m from sqrt(1/2)
// to sqrt(2), log m = 2 artanh(s), s = (m - 1) / (m + 1).
GPU_FN float logarithm(float x) {
  if (!(x > 0)) return x == 0 ? -bits_of<float>(0x7f800000) : bits_of<float>(0x7fc00000);
  if (x > 3.4028234e38F) return x;
  int e = 0;
  if (x < 1.17549435e-38F) {
    x *= 0x1p24F;
    e = -24;
  }
  int bits = bits_of<int>(x) - 0x3f3504f3;  // sqrt(1/2)
  e += bits >> 23;
  bits = (bits & 0x7fffff) + 0x3f3504f3;
  const float f = bits_of<float>(bits) - 1.0F;
  const float s = f / (2.0F + f);
  const float z = s * s;
  float p = 0.1111111111F;
  p = fma(p, z, 0.1428571429F);
  p = fma(p, z, 0.2F);
  p = fma(p, z, 0.3333333333F);
  // 2 artanh(s) = f - s (f - 2 z p): the largest term, f, is exact.
  const float rest = s * (f - 2.0F * z * p);
  const auto n = static_cast<float>(e);
  return fma(n, 0x1.62e4p-1F, f - (rest - n * 0x1.7f7d1cp-20F));
}

GPU_FN float sigmoid(float x) { return 1.0F / (1.0F + exponential(-x)); }

// Within 4 ulp.
GPU_FN float hyperbolic_tangent(float x) {
  const float magnitude = x < 0 ? -x : x;
  const float large = 1.0F - 2.0F / (exponential(magnitude + magnitude) + 1.0F);
  const float square = x * x;
  float p = -0.005704970099031925F;
  p = fma(p, square, 0.020639073103666306F);
  p = fma(p, square, -0.05373971164226532F);
  p = fma(p, square, 0.13331441581249237F);
  p = fma(p, square, -0.3333328068256378F);
  const float small = fma(x * square, p, x);
  return magnitude < 0.625F ? small : x < 0 ? -large : large;
}

// Sine and cosine within 1.5e-7 of angles below 2^21, within 3e-7 up to 2^31 (reduced in fp64).
struct SineCosine {
  float sine, cosine;
};
GPU_FN SineCosine sine_cosine(float a) {
  int quadrant;
  float r;
  if ((a < 0 ? -a : a) <= 0x1p21F) {
    const float shifted = fma(a, 0x1.45f306p-1F, magic);
    const float n = shifted - magic;
    r = fma(n, -0x1.921fb6p0F, a);
    r = fma(n, 0x1.777a5cp-25F, r);
    r = fma(n, 0x1.ee59dap-50F, r);
    quadrant = bits_of<int>(shifted);
  } else {
    const auto wide = static_cast<double>(a);
    const auto n = static_cast<int64_t>(wide * 0.63661977236758134 + (wide < 0 ? -0.5 : 0.5));
    const auto turns = static_cast<double>(n);
    r = static_cast<float>((wide - turns * 0x1.921fb544p0) - turns * 0x1.0b4611a626331p-34);
    quadrant = static_cast<int>(n);
  }
  const float square = r * r;
  float s = fma(-0.00019587959F, square, 0.008332749F);
  s = fma(s, square, -0.16666664F);
  s = fma(s * square, r, r);
  float c = fma(2.454799e-05F, square, -0.0013888304F);
  c = fma(c, square, 0.041666664F);
  c = fma(c * square, square, fma(square, -0.5F, 1.0F));
  // Quadrant 0: (s, c), 1: (c, -s), 2: (-s, -c), 3: (-c, s).
  const bool odd = (quadrant & 1) != 0;
  const float sine = odd ? c : s;
  const float cosine = odd ? s : c;
  return {(quadrant & 2) != 0 ? -sine : sine, ((quadrant + 1) & 2) != 0 ? -cosine : cosine};
}

}  // namespace ingot::gpu::GPU_TARGET
#endif
