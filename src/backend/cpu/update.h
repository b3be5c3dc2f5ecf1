// What the optimizers' updates share on CPUs.
#pragma once

#include "tensor/tensor.h"

namespace ingot::cpu {

// Applies the scale of a decision (ops/adamw.h), if there is one; false if updates are halted.
inline bool apply_decision(const Tensor& decision, float& gradient_scale) {
  if (!decision) return true;
  gradient_scale = static_cast<float>(decision.as<double>()[1]);
  return decision.as<double>()[2] == 0;
}

// Address of element i.
inline void* address_of(const Tensor& tensor, int64_t i) {
  return static_cast<std::byte*>(tensor.data) + static_cast<size_t>(i) * size_of(tensor.dtype);
}

}  // namespace ingot::cpu
