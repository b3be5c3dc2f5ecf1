// AdamW (Loshchilov and Hutter 2019, arXiv 1711.05101) and the gradient norm it is clipped by.
#pragma once

#include <array>
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
  // [3] f64, absent when not wanted: what decide_update said. Its scale takes the place of `gradient_scale`, and where
  // updates are halted nothing happens.
  Tensor decision{};
};

// The state of one parameter of n elements.
struct AdamwState {
  Tensor master;   // [n] f32 or bf16: the weight that is updated
  Tensor moment1;  // [n] f32 or bf16
  Tensor moment2;  // [n] f32 or bf16
  Tensor weight;   // [n] bf16 copy that the model computes with; absent when the model uses `master` itself
  std::array<Tensor, 4> tensors() const { return {master, moment1, moment2, weight}; }
};

// g = gradient_scale * gradient; m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2; master -= lr * weight_decay * master, then
// master -= lr * (m / (1-b1^step)) / (sqrt(v / (1-b2^step)) + epsilon) (PyTorch's order and formula). gradient [n] f32.
void adamw(Context& context, const AdamwState& state, const Tensor& gradient, AdamwAttributes attributes);

struct Adamw {
  static constexpr const char* name = "adamw";
  using Signature = void(Context&, const AdamwState&, const Tensor&, AdamwAttributes);
};

// Assigns, or adds to, sum [1] f64 the sum of x^2 over x [n] f32: fp64 sums of blocks of 65,536 elements, added in
// order; the same bits for any number of threads. A non-finite element makes it non-finite.
void sum_squares(Context& context, const Tensor& sum, const Tensor& x, bool accumulate = false);

struct SumSquares {
  static constexpr const char* name = "sum_squares";
  using Signature = void(Context&, const Tensor&, const Tensor&, bool);
};

struct DecisionAttributes {
  double counted = 1;   // tokens that the gradient is a sum over
  double max_norm = 0;  // of the mean gradient; 0: no clipping
};

// Decides an update where the gradients are, so that nobody waits: decision [3] f64 becomes
//   [0] the mean gradient's norm, sqrt(sum of squares [n] f64, in order) / counted
//   [1] what its update multiplies a gradient with: min(1, max_norm / (norm + 1e-6)) / counted (PyTorch's
//       clip_grad_norm_)
//   [2] 1 when the norm or loss_squares [1] f64 is not finite: updates are halted. It stays 1 until somebody clears it.
// All in double, the same bits everywhere.
void decide_update(Context& context, const Tensor& decision, const Tensor& squares, const Tensor& loss_squares,
                   DecisionAttributes attributes);

struct DecideUpdate {
  static constexpr const char* name = "decide_update";
  using Signature = void(Context&, const Tensor&, const Tensor&, const Tensor&, DecisionAttributes);
};

}  // namespace ingot::ops
