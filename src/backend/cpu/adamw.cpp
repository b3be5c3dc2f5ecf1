#include "ops/adamw.h"

#include <cmath>

#include "backend/cpu/glue.h"
#include "backend/cpu/ops.h"
#include "backend/cpu/simd/adamw.h"
#include "backend/cpu/update.h"
#include "ops/adamw_bytes.h"

namespace ingot::cpu {
namespace {

using ops::AdamwAttributes;
using ops::AdamwState;
using ops::Context;

AdamwStep step_of(const AdamwAttributes& a) {
  const double lr = static_cast<double>(a.lr);
  const double beta1 = static_cast<double>(a.beta1);
  const double beta2 = static_cast<double>(a.beta2);
  const double steps = static_cast<double>(a.step);
  return {.beta1 = a.beta1,
          .one_minus_beta1 = static_cast<float>(1.0 - beta1),
          .beta2 = a.beta2,
          .one_minus_beta2 = static_cast<float>(1.0 - beta2),
          .epsilon = a.epsilon,
          .decay = static_cast<float>(1.0 - lr * static_cast<double>(a.weight_decay)),
          .step_size = static_cast<float>(lr / (1.0 - std::pow(beta1, steps))),
          .root = static_cast<float>(std::sqrt(1.0 - std::pow(beta2, steps))),
          .gradient_scale = a.gradient_scale};
}

std::array<CodedState, 2> coded_states(const AdamwState& state) {
  return {{{state.moment1, state.moment1_scales, true}, {state.moment2, state.moment2_scales, false}}};
}

template <const AdamwKernels& K>
void run(Context& context, const AdamwState& state, const Tensor& gradient, AdamwAttributes attributes) {
  if (!apply_decision(attributes.decision, attributes.gradient_scale)) return;
  const AdamwStep step = step_of(attributes);
  const auto update = [&](int64_t at, int64_t n, EitherMemory moment1, EitherMemory moment2) {
    K.update({memory_at(state.master, at), moment1, moment2, weight_at(state.weight, at)}, gradient.as<float>() + at, n,
             step);
  };
  if (state.moment1.dtype == DType::u8) {
    update_blocks(context, coded_states(state), *K.blockwise, [&](int64_t at, int64_t n, auto& moments) {
      update(at, n, {moments[0].data(), false}, {moments[1].data(), false});
    });
    return;
  }
  context.threads->parallel_for(0, gradient.elements(), element_grain, [&](int64_t lo, int64_t hi) {
    update(lo, hi - lo, memory_at(state.moment1, lo), memory_at(state.moment2, lo));
  });
}

void reference(Context& context, const AdamwState& state, const Tensor& gradient, AdamwAttributes a) {
  if (!apply_decision(a.decision, a.gradient_scale)) return;
  a.decision = {};
  if (state.moment1.dtype == DType::u8) {
    update_blocks(context, coded_states(state), reference_blockwise, [&](int64_t at, int64_t n, auto& moments) {
      const auto decoded = [&](size_t i) { return Tensor{moments[i].data(), DType::f32, {n}, gradient.device}; };
      const Tensor weight = state.weight ? state.weight.slice(at, at + n) : Tensor{};
      reference(context, {state.master.slice(at, at + n), decoded(0), decoded(1), weight}, gradient.slice(at, at + n),
                a);
    });
    return;
  }
  const double beta1 = static_cast<double>(a.beta1);
  const double beta2 = static_cast<double>(a.beta2);
  const double lr = static_cast<double>(a.lr);
  const double correct1 = 1.0 - std::pow(beta1, static_cast<double>(a.step));
  const double correct2 = 1.0 - std::pow(beta2, static_cast<double>(a.step));
  for (int64_t i = 0; i < gradient.elements(); ++i) {
    const double g = element(gradient, i) * static_cast<double>(a.gradient_scale);
    const double m = beta1 * element(state.moment1, i) + (1.0 - beta1) * g;
    const double v = beta2 * element(state.moment2, i) + (1.0 - beta2) * g * g;
    double master = element(state.master, i);
    master -= lr * static_cast<double>(a.weight_decay) * master;
    master -= lr * (m / correct1) / (std::sqrt(v / correct2) + static_cast<double>(a.epsilon));
    set_element(state.moment1, i, m);
    set_element(state.moment2, i, v);
    set_element(state.master, i, master);
    if (state.weight) set_element(state.weight, i, master);
  }
}

// Sums each block, then adds the sums of the blocks in order.
template <class Block>
void sum_blocks(Context& context, const Tensor& sum, const Tensor& x, bool accumulate, Block block_sum) {
  constexpr int64_t block = ops::sum_squares_block;
  std::vector<double> parts(static_cast<size_t>((x.elements() + block - 1) / block));
  context.threads->parallel_for(0, x.elements(), block, [&](int64_t lo, int64_t hi) {
    parts[static_cast<size_t>(lo / block)] = block_sum(x.as<float>() + lo, hi - lo);
  });
  double total = 0;
  for (const double part : parts) total += part;
  double* out = sum.as<double>();
  *out = accumulate ? *out + total : total;
}

template <const AdamwKernels& K>
void run_sum_squares(Context& context, const Tensor& sum, const Tensor& x, bool accumulate) {
  sum_blocks(context, sum, x, accumulate, K.sum_squares);
}

void reference_sum_squares(Context& context, const Tensor& sum, const Tensor& x, bool accumulate) {
  sum_blocks(context, sum, x, accumulate, [](const float* values, int64_t n) {
    double total = 0;
    for (int64_t i = 0; i < n; ++i) total += static_cast<double>(values[i]) * static_cast<double>(values[i]);
    return total;
  });
}

void decide_update(Context&, const Tensor& decision, const Tensor& squares, const Tensor& loss_squares,
                   ops::DecisionAttributes attributes) {
  double sum = 0;
  for (int64_t i = 0; i < squares.elements(); ++i) sum += squares.as<double>()[i];
  const double norm = std::sqrt(sum) / attributes.loss_tokens;
  const double clip = attributes.max_norm > 0 ? std::min(1.0, attributes.max_norm / (norm + 1e-6)) : 1.0;
  double* out = decision.as<double>();
  out[0] = norm;
  out[1] = clip / attributes.loss_tokens;
  if (!std::isfinite(norm) || !std::isfinite(*loss_squares.as<double>())) out[2] = 1;
}

}  // namespace

void register_adamw(ops::Registry& registry, Levels levels) {
  INGOT_ADD_LEVELS(registry, levels.best, ops::Adamw, run, adamw_kernels);
  INGOT_ADD_LEVELS(registry, levels.best, ops::SumSquares, run_sum_squares, adamw_kernels);
  registry.add<ops::Adamw>(DeviceKind::cpu, "reference", reference);
  registry.add<ops::SumSquares>(DeviceKind::cpu, "reference", reference_sum_squares);
  registry.add<ops::DecideUpdate>(DeviceKind::cpu, "reference", decide_update);
}

}  // namespace ingot::cpu
