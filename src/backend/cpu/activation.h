// The activation functions in double, for the reference implementations.
#pragma once

#include <cmath>

#include "base/error.h"
#include "ops/activation.h"

namespace ingot::cpu {

struct Activated {
  double value, slope;
};

inline Activated activate(ops::Activation activation, double z) {
  switch (activation) {
    case ops::Activation::silu: {
      const double s = 1.0 / (1.0 + std::exp(-z));
      return {z * s, s * (1.0 + z * (1.0 - s))};
    }
    case ops::Activation::gelu: {
      const double share = 0.5 * std::erfc(-z / std::sqrt(2.0));
      return {z * share, share + z * std::exp(-0.5 * z * z) / std::sqrt(2.0 * M_PI)};
    }
    case ops::Activation::gelu_tanh: {
      // (1 + tanh(u)) / 2 = 1 / (1 + exp(-2u)), without the cancellation of 1 + tanh(u) for negative u.
      const double rate = 2.0 * std::sqrt(2.0 / M_PI);
      const double e = std::exp(-rate * (z + 0.044715 * z * z * z));
      const double s = 1.0 / (1.0 + e);
      const double rest = 1.0 / (1.0 + 1.0 / e);
      return {z * s, s + z * s * rest * rate * (1.0 + 3.0 * 0.044715 * z * z)};
    }
  }
  throw_error(ErrorKind::internal, "activation {} does not exist", static_cast<int>(activation));
}

}  // namespace ingot::cpu
