#include "ops/muon.h"

#include <algorithm>
#include <cmath>

#include "ops/adamw.h"
#include "ops/blockwise.h"
#include "ops/check.h"
#include "ops/matmul.h"
#include "ops/registry.h"

namespace ingot::ops {

namespace {

// Of the quintic iteration: chosen by Jordan et al. for the largest slope at 0.
constexpr float newton_schulz_a = 3.4445F;
constexpr float newton_schulz_b = -4.7750F;
constexpr float newton_schulz_c = 2.0315F;
constexpr int newton_schulz_steps = 5;

Tensor flat(const Tensor& tensor) { return tensor ? tensor.reshape(Shape{tensor.elements()}) : tensor; }

}  // namespace

void newton_schulz(Context& context, const Tensor& x, DType iterate) {
  const char* op = "newton_schulz";
  check_rank(op, "x", x, 2);
  check(op, "x", context, x, x.shape, {DType::f32});
  if (iterate != DType::f32 && iterate != DType::bf16) {
    throw_error(ErrorKind::internal, "newton_schulz: iterates in f32 or bf16, not {}", name(iterate));
  }
  if (x.elements() == 0) return;
  const Arena::Scope scope(context.scratch);
  const int64_t rows = x.shape[0];
  const int64_t columns = x.shape[1];
  const bool wide = rows <= columns;
  const int64_t side = std::min(rows, columns);
  const Tensor squares = context.scratch.allocate(DType::f64, Shape{1});
  const Tensor iterated = context.scratch.allocate(iterate, x.shape);
  const Tensor gram = context.scratch.allocate(iterate, Shape{side, side});
  const Tensor square = context.scratch.allocate(DType::f32, Shape{side, side});
  constexpr MatmulAttributes whole{.invariance = Invariance::none};  // no rank has a part of a matrix
  sum_squares(context, squares, flat(x));
  muon_normalize(context, flat(iterated), flat(x), squares);
  for (int step = 1; step <= newton_schulz_steps; ++step) {
    matmul(context, gram, iterated, iterated,
           {.transpose_a = !wide, .transpose_b = wide, .invariance = Invariance::none});
    matmul(context, square, gram, gram, whole);
    muon_combine(context, flat(gram), flat(gram), flat(square), {newton_schulz_b, newton_schulz_c});
    // The product goes to x, whose values are in `iterated` by now.
    wide ? matmul(context, x, gram, iterated, whole) : matmul(context, x, iterated, gram, whole);
    const Tensor& to = step < newton_schulz_steps ? iterated : x;
    muon_combine(context, flat(to), flat(iterated), flat(x), {newton_schulz_a, 1});
  }
}

void muon(Context& context, const MuonState& state, const Tensor& gradient, MuonAttributes attributes) {
  const char* op = "muon";
  check_rank(op, "gradient", gradient, 2);
  check(op, "gradient", context, gradient, gradient.shape, {DType::f32});
  check(op, "master", context, state.master, gradient.shape, {DType::f32, DType::bf16});
  check_state(op, "momentum", context, state.momentum, state.momentum_scales, gradient.shape);
  if (state.weight) check(op, "weight", context, state.weight, gradient.shape, {DType::bf16});
  if (gradient.elements() == 0) return;
  const Arena::Scope scope(context.scratch);
  const Tensor update = context.scratch.allocate(DType::f32, gradient.shape);
  muon_momentum(context, flat(update), flat(state.momentum), state.momentum_scales, flat(gradient),
                {attributes.momentum, attributes.gradient_scale, attributes.decision});
  newton_schulz(context, update, attributes.iterate);
  const auto longest = static_cast<double>(std::max(gradient.shape[0], gradient.shape[1]));
  muon_apply(
      context, flat(state.master), flat(state.weight), flat(update),
      {attributes.lr, attributes.weight_decay, static_cast<float>(0.2 * std::sqrt(longest)), attributes.decision});
}

void muon_momentum(Context& context, const Tensor& update, const Tensor& momentum, const Tensor& scales,
                   const Tensor& gradient, MuonMomentumAttributes attributes) {
  const char* op = "muon_momentum";
  check(op, "gradient", context, gradient, Shape{gradient.elements()}, {DType::f32});
  check(op, "update", context, update, gradient.shape, {DType::f32});
  check_state(op, "momentum", context, momentum, scales, gradient.shape);
  if (attributes.decision) check(op, "decision", context, attributes.decision, Shape{3}, {DType::f64});
  if (gradient.elements() == 0) return;
  dispatch<MuonMomentum>(context, update, momentum, scales, gradient, attributes);
}

void muon_normalize(Context& context, const Tensor& y, const Tensor& x, const Tensor& squares) {
  const char* op = "muon_normalize";
  check(op, "x", context, x, Shape{x.elements()}, {DType::f32});
  check(op, "y", context, y, x.shape, {DType::f32, DType::bf16});
  check(op, "squares", context, squares, Shape{1}, {DType::f64});
  if (x.elements() == 0) return;
  dispatch<MuonNormalize>(context, y, x, squares);
}

void muon_combine(Context& context, const Tensor& y, const Tensor& x, const Tensor& p,
                  MuonCombineAttributes attributes) {
  const char* op = "muon_combine";
  check(op, "p", context, p, Shape{p.elements()}, {DType::f32});
  check(op, "y", context, y, p.shape, {DType::f32, DType::bf16});
  check(op, "x", context, x, p.shape, {DType::f32, DType::bf16});
  if (p.elements() == 0) return;
  dispatch<MuonCombine>(context, y, x, p, attributes);
}

void muon_apply(Context& context, const Tensor& master, const Tensor& weight, const Tensor& update,
                MuonApplyAttributes attributes) {
  const char* op = "muon_apply";
  check(op, "update", context, update, Shape{update.elements()}, {DType::f32});
  check(op, "master", context, master, update.shape, {DType::f32, DType::bf16});
  if (weight) check(op, "weight", context, weight, update.shape, {DType::bf16});
  if (attributes.decision) check(op, "decision", context, attributes.decision, Shape{3}, {DType::f64});
  if (update.elements() == 0) return;
  dispatch<MuonApply>(context, master, weight, update, attributes);
}

}  // namespace ingot::ops
