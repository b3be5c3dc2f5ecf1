// Reference activations for the cases of the ops activation and glu, written differently from the implementations.
#pragma once

#include <cmath>

#include "ops/activation.h"

namespace ingot::ops::testing {

inline constexpr ops::Activation every_activation[] = {ops::Activation::silu, ops::Activation::gelu,
                                                       ops::Activation::gelu_tanh};

// The factor t in activation(z) = z t.
inline double activation_share(ops::Activation activation, double z) {
  switch (activation) {
    case ops::Activation::silu: return 0.5 * (1.0 + std::tanh(0.5 * z));
    case ops::Activation::gelu: return 0.5 * (1.0 + std::erf(z * M_SQRT1_2));
    case ops::Activation::gelu_tanh: return 1.0 / (1.0 + std::exp(-M_2_SQRTPI * M_SQRT2 * (z + 0.044715 * z * z * z)));
  }
  return NAN;
}

inline double activated(ops::Activation activation, double z) { return z * activation_share(activation, z); }

// The derivative t + z t', with t' = dt/dz; for silu and gelu_tanh t' is t (1 - t) times the slope of the argument, as
// t is a logistic function.
inline double activation_slope(ops::Activation activation, double z) {
  const double t = activation_share(activation, z);
  switch (activation) {
    case ops::Activation::silu: return t + z * t * (1.0 - t);
    case ops::Activation::gelu: return t + z * 0.5 * M_2_SQRTPI * M_SQRT1_2 * std::exp(-0.5 * z * z);
    case ops::Activation::gelu_tanh:
      return t + z * t * (1.0 - t) * M_2_SQRTPI * M_SQRT2 * (1.0 + 3.0 * 0.044715 * z * z);
  }
  return NAN;
}

}  // namespace ingot::ops::testing
