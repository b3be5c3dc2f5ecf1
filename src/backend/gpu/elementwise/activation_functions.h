// The activations (ops/activation.h) and their derivatives. Apart from the enum, for kernel passes only.
#pragma once

#include "backend/gpu/elementwise/functions.h"

namespace ingot::gpu {

enum class ActivationType : int32_t { silu, gelu, gelu_tanh };  // the values of ops::Activation

}  // namespace ingot::gpu

#if GPU_KERNEL_PASS
namespace ingot::gpu::GPU_TARGET {

struct Activated {
  float value, derivative;
};

struct Silu {
  GPU_FN static float value(float z) { return z * sigmoid(z); }
  GPU_FN static Activated with_derivative(float z) {
    // For z > 0, 1 - s would keep few digits of what is multiplied by z; for z < 0, e may be infinite.
    const float e = exponential(-z);
    const float s = 1.0F / (1.0F + e);
    const float one_minus_s = z > 0 ? e * s : 1.0F - s;
    return {z * s, s * fma(z, one_minus_s, 1.0F)};
  }
};

struct Gelu {
  // As in backend/cpu/simd/activation_functions.h: density = exp(-z^2 / 2), without its constant factor, and cdf =
  // Phi(z), whose tail is density times a polynomial in 1 / (1 + 0.33 |z|).
  struct Normal {
    float cdf, density;
  };
  GPU_FN static Normal normal(float z) {
    const float a = z < 0 ? -z : z;
    const float density = exponential(a * a * -0.5F);
    const float t = 1.0F / fma(a, 0.33F, 1.0F);
    float r = -0.020442333072423935F;
    r = fma(r, t, 0.1213480532169342F);
    r = fma(r, t, -0.26370930671691895F);
    r = fma(r, t, 0.220783069729805F);
    r = fma(r, t, -0.0539686344563961F);
    r = fma(r, t, 0.12077649682760239F);
    r = fma(r, t, 0.11131945997476578F);
    r = fma(r, t, 0.1322692334651947F);
    r = fma(r, t, 0.1316239982843399F);
    const float tail = density * (r * t);
    return {z > 0 ? 1.0F - tail : tail, density};
  }
  GPU_FN static float value(float z) { return z * normal(z).cdf; }
  GPU_FN static Activated with_derivative(float z) {
    const Normal n = normal(z);
    return {z * n.cdf, fma(z * n.density, 0.3989422804F, n.cdf)};
  }
};

struct GeluTanh {
  // (1 + tanh(u)) / 2 is the logistic function of 2u.
  static constexpr float linear = 1.5957691216F;  // 2 sqrt(2 / pi)
  static constexpr float cubic = 0.07135481627F;  // 0.044715 times that
  GPU_FN static float value(float z) { return z * sigmoid(z * fma(z * z, cubic, linear)); }
  GPU_FN static Activated with_derivative(float z) {
    // s and 1 - s are r and e * r in some order, so that the smaller one keeps all its digits.
    const float u = z * fma(z * z, cubic, linear);
    const float e = exponential(u < 0 ? u : -u);
    const float r = 1.0F / (1.0F + e);
    const float s = u > 0 ? r : e * r;
    const float clamped_z = z > 40.0F ? 40.0F : z < -40.0F ? -40.0F : z;  // beyond 40 e is 0 and z^2 may be infinite
    const float du_dz = fma(clamped_z * clamped_z, 3.0F * cubic, linear);
    return {z * s, fma(clamped_z * du_dz, r * (e * r), s)};
  }
};

// Calls body with the functor (Silu, Gelu or GeluTanh) of `activation`.
template <class Body>
GPU_FN void with_activation(ActivationType activation, Body body) {
  switch (activation) {
    case ActivationType::silu: return body(Silu{});
    case ActivationType::gelu: return body(Gelu{});
    case ActivationType::gelu_tanh: return body(GeluTanh{});
  }
}

}  // namespace ingot::gpu::GPU_TARGET

#else

#include "ops/activation.h"

namespace ingot::gpu {

static_assert(static_cast<int>(ActivationType::silu) == static_cast<int>(ops::Activation::silu) &&
              static_cast<int>(ActivationType::gelu) == static_cast<int>(ops::Activation::gelu) &&
              static_cast<int>(ActivationType::gelu_tanh) == static_cast<int>(ops::Activation::gelu_tanh));
inline ActivationType activation_type_of(ops::Activation activation) { return static_cast<ActivationType>(activation); }

}  // namespace ingot::gpu
#endif
