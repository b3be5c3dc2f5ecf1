// Reference activations for the cases of the ops activation and glu, written differently from the implementations.
#pragma once

#include <cmath>

#include "ops/activation.h"

namespace ingot::ops::testing {

inline constexpr ops::Activation every_activation[] = {ops::Activation::silu, ops::Activation::gelu,
                                                       ops::Activation::gelu_tanh};

// activation(z) = z t. For silu and gelu_tanh t is the logistic function of some u(z), and t' is t (1 - t) u'.
struct Share {
  double t;
  double rate;  // t'
  double bend;  // a bound of |t''|
};

inline double logistic(double u) { return u < 0 ? std::exp(u) / (1.0 + std::exp(u)) : 1.0 / (1.0 + std::exp(-u)); }

inline Share activation_share(ops::Activation activation, double z) {
  switch (activation) {
    case ops::Activation::silu: {
      const double rate = logistic(z) * logistic(-z);
      return {logistic(z), rate, rate};
    }
    case ops::Activation::gelu: {
      const double density = 0.5 * M_2_SQRTPI * M_SQRT1_2 * std::exp(-0.5 * z * z);
      return {0.5 * std::erfc(-z * M_SQRT1_2), density, std::abs(z) * density};
    }
    case ops::Activation::gelu_tanh: {
      constexpr double factor = M_2_SQRTPI * M_SQRT2;
      const double u = factor * (z + 0.044715 * z * z * z);
      const double slope = factor * (1.0 + 3.0 * 0.044715 * z * z);
      const double spread = logistic(u) * logistic(-u);
      return {logistic(u), spread * slope, spread * (slope * slope + factor * 6.0 * 0.044715 * std::abs(z))};
    }
  }
  return {NAN, NAN, NAN};
}

inline double activated(ops::Activation activation, double z) { return z * activation_share(activation, z).t; }

// The derivative t + z t'.
inline double activation_slope(ops::Activation activation, double z) {
  const Share share = activation_share(activation, z);
  return share.t + z * share.rate;
}

// Conditions of both (op_table.h): their terms, and how they follow z, because fp32 rounds what is a function of z
// before the exponential is taken. t becomes 0 below fp32's smallest number: an absolute error.
inline double activated_condition(ops::Activation activation, double z) {
  const Share share = activation_share(activation, z);
  return std::abs(z) * (2.0 * share.t + std::abs(z) * share.rate + 0x1p-100);
}
inline double activation_slope_condition(ops::Activation activation, double z) {
  const Share share = activation_share(activation, z);
  const double size = std::abs(z);
  return share.t + 3.0 * size * share.rate + size * size * share.bend + (1.0 + size) * 0x1p-100;
}

}  // namespace ingot::ops::testing
