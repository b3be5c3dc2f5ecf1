// AdamW (Loshchilov and Hutter 2019, arXiv 1711.05101) and the gradient norm it is clipped by.
#pragma once

#include <cstdint>

#include "ops/context.h"
#include "tensor/tensor.h"

namespace ingot::ops {

struct AdamwAttributes {
  float lr = 0;
  float beta1 = 0.9F;
  float beta2 = 0.95F;
  float epsilon = 1e-8F;
  float weight_decay = 0;
  float gradient_scale = 1;  // multiplies the gradient first: 1 / counted tokens, and clipping
  int64_t step = 1;          // this update's number, from 1, for the bias corrections (computed in double)
};

// The state of one parameter of n elements.
struct AdamwState {
  Tensor master;   // [n] f32 or bf16: the weight that is updated
  Tensor moment1;  // [n] f32 or bf16
  Tensor moment2;  // [n] f32 or bf16
  Tensor weight;   // [n] bf16 copy that the model computes with; absent when the model uses `master` itself
};

// g = gradient_scale * gradient; m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2; master -= lr * weight_decay * master, then
// master -= lr * (m / (1-b1^step)) / (sqrt(v / (1-b2^step)) + epsilon) (PyTorch's order and formula). gradient [n] f32.
void adamw(Context& context, const AdamwState& state, const Tensor& gradient, AdamwAttributes attributes);

struct Adamw {
  static constexpr const char* name = "adamw";
  using Signature = void(Context&, const AdamwState&, const Tensor&, AdamwAttributes);
};

// Assigns sum [1] f64 = sum of x^2 over x [n] f32: fp64 sums of blocks of 65,536 elements, added in order; the same
// bits for any number of threads. A non-finite element makes it non-finite.
void sum_squares(Context& context, const Tensor& sum, const Tensor& x);

struct SumSquares {
  static constexpr const char* name = "sum_squares";
  using Signature = void(Context&, const Tensor&, const Tensor&);
};

}  // namespace ingot::ops
