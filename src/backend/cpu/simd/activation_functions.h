// The activation functions (ops/activation.h) and their derivatives on vectors. Included by simd/*.cpp only.
#pragma once

#include "backend/cpu/simd/simd.h"

namespace ingot::cpu::INGOT_SIMD_LEVEL {

struct Activated {
  Floats value, derivative;
};

struct Silu {
  INGOT_INLINE Floats value(Floats z) { return z * sigmoid(z); }
  INGOT_INLINE Activated with_derivative(Floats z) {
    // For z > 0, 1 - s would keep few digits of what is multiplied by z; for z < 0, e may be infinite.
    const Floats e = exp(-z);
    const Floats s = reciprocal(1.0F + e);
    const Floats one_minus_s = z > Floats{} ? e * s : 1.0F - s;
    return {z * s, s * fma(z, one_minus_s, splat(1.0F))};
  }
};

struct Gelu {
  // density = exp(-z^2 / 2), without its constant factor, and cdf = Phi(z). The normal distribution's tail beyond |z|
  // is density R(|z|), where R is a polynomial in 1 / (1 + 0.33 |z|) (the form of Hastings 1955; minimax in relative
  // error for |z| up to 14.5, 6e-8, computed by Lawson's iteration), so that the tail has a small relative error
  // wherever fp32 can represent it.
  struct Normal {
    Floats cdf, density;
  };
  INGOT_INLINE Normal normal(Floats z) {
    const Floats a = max(z, -z);
    const Floats density = exp(a * a * -0.5F);
    const Floats t = reciprocal(fma(a, splat(0.33F), splat(1.0F)));
    Floats r = splat(-0.020442333072423935F);
    r = fma(r, t, splat(0.1213480532169342F));
    r = fma(r, t, splat(-0.26370930671691895F));
    r = fma(r, t, splat(0.220783069729805F));
    r = fma(r, t, splat(-0.0539686344563961F));
    r = fma(r, t, splat(0.12077649682760239F));
    r = fma(r, t, splat(0.11131945997476578F));
    r = fma(r, t, splat(0.1322692334651947F));
    r = fma(r, t, splat(0.1316239982843399F));
    const Floats tail = density * (r * t);
    return {z > Floats{} ? 1.0F - tail : tail, density};
  }
  INGOT_INLINE Floats value(Floats z) { return z * normal(z).cdf; }
  INGOT_INLINE Activated with_derivative(Floats z) {
    const Normal n = normal(z);
    return {z * n.cdf, fma(z * n.density, splat(0.3989422804F), n.cdf)};
  }
};

struct GeluTanh {
  // (1 + tanh(u)) / 2 is the logistic function of 2u.
  static constexpr float linear = 1.5957691216F;  // 2 sqrt(2 / pi)
  static constexpr float cubic = 0.07135481627F;  // 0.044715 times `linear`
  INGOT_INLINE Floats logistic(Floats z) { return sigmoid(z * fma(z * z, splat(cubic), splat(linear))); }
  INGOT_INLINE Floats value(Floats z) { return z * logistic(z); }
  INGOT_INLINE Activated with_derivative(Floats z) {
    // s and 1 - s are r and e r in some order; this keeps full precision in the smaller one.
    const Floats u = z * fma(z * z, splat(cubic), splat(linear));
    const Floats e = exp(min(u, -u));
    const Floats r = reciprocal(1.0F + e);
    const Floats s = u > Floats{} ? r : e * r;
    const Floats clamped_z = min(splat(40.0F), max(splat(-40.0F), z));  // beyond this e is 0, and z^2 may be infinite
    const Floats du_dz = fma(clamped_z * clamped_z, splat(3.0F * cubic), splat(linear));
    return {z * s, fma(clamped_z * du_dz, r * (e * r), s)};
  }
};

}  // namespace ingot::cpu::INGOT_SIMD_LEVEL
