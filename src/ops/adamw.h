// AdamW (Loshchilov and Hutter 2019, arXiv 1711.05101), and the gradient norm for clipping.
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
  float gradient_scale = 1;  // multiplies the gradient first: 1 / loss tokens, times the clipping factor
  int64_t step = 1;          // number of this update, from 1, for the bias corrections (computed in double)
  // [3] f64, the result of decide_update; may be absent. When present, decision[1] replaces `gradient_scale`, and the
  // update is skipped when decision[2] is not 0.
  Tensor decision{};
};

// The state of one parameter of n elements.
struct AdamwState {
  Tensor master;   // [n] f32 or bf16: the weight that is updated
  Tensor moment1;  // [n] f32, bf16 or u8
  Tensor moment2;  // [n] f32, bf16 or u8, as moment1 if either is u8
  Tensor weight;   // [n] bf16 copy that the model computes with; absent when the model uses `master` itself
  // [ceil(n / 256)] f32 each, with moments of u8 codes (ops/blockwise.h; moment2 is unsigned), which are decoded,
  // updated and encoded again, a block at a time.
  Tensor moment1_scales{}, moment2_scales{};
  std::array<Tensor, 6> tensors() const { return {master, moment1, moment2, weight, moment1_scales, moment2_scales}; }
};

// g = gradient_scale * gradient; m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2; master -= lr * weight_decay * master, then
// master -= lr * (m / (1-b1^step)) / (sqrt(v / (1-b2^step)) + epsilon) (PyTorch's order and formula). gradient [n] f32.
void adamw(Context& context, const AdamwState& state, const Tensor& gradient, AdamwAttributes attributes);

struct Adamw {
  static constexpr const char* name = "adamw";
  using Signature = void(Context&, const AdamwState&, const Tensor&, AdamwAttributes);
};

// sum [1] f64 (+)= the sum of x^2 over x [n] f32, in fp64: blocks of 65,536 elements are summed first, then the blocks
// in order, so the bits do not depend on the number of threads. Non-finite if any element is.
void sum_squares(Context& context, const Tensor& sum, const Tensor& x, bool accumulate = false);

struct SumSquares {
  static constexpr const char* name = "sum_squares";
  using Signature = void(Context&, const Tensor&, const Tensor&, bool);
};

struct DecisionAttributes {
  double loss_tokens = 1;  // tokens that the gradient is a sum over
  double max_norm = 0;     // of the mean gradient; 0: no clipping
};

// Decides about the optimizer update on the device, without a synchronisation with the host: decision [3] f64 becomes
//   [0] the norm of the mean gradient, sqrt(sum of squares [n] f64, added in order) / loss_tokens
//   [1] the factor that multiplies the gradient: min(1, max_norm / (norm + 1e-6)) / loss_tokens (PyTorch's
//       clip_grad_norm_)
//   [2] 1 when the norm or loss_squares [1] f64 is not finite: updates are halted. It stays 1 until the caller clears
//   it.
// All in double, with the same bits on every device.
void decide_update(Context& context, const Tensor& decision, const Tensor& squares, const Tensor& loss_squares,
                   DecisionAttributes attributes);

struct DecideUpdate {
  static constexpr const char* name = "decide_update";
  using Signature = void(Context&, const Tensor&, const Tensor&, const Tensor&, DecisionAttributes);
};

}  // namespace ingot::ops
