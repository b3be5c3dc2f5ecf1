#include "ops/momentum.h"

#include "backend/cpu/glue.h"
#include "backend/cpu/ops.h"
#include "backend/cpu/simd/momentum.h"
#include "backend/cpu/update.h"

namespace ingot::cpu {
namespace {

using ops::Context;
using ops::LionAttributes;
using ops::MomentumState;
using ops::SgdAttributes;

std::array<CodedState, 1> coded_state(const MomentumState& state) {
  return {{{state.momentum, state.momentum_scales, true}}};
}

template <class Step>
void run_update(Context& context, const MomentumState& state, const Tensor& gradient, const Step& step,
                const MomentumKernels& kernels, void (*kernel)(MomentumMemory, const float*, int64_t, Step)) {
  const auto update = [&](int64_t at, int64_t n, EitherMemory momentum) {
    kernel({memory_at(state.master, at), momentum, weight_at(state.weight, at)}, gradient.as<float>() + at, n, step);
  };
  if (state.momentum.dtype == DType::u8) {
    update_blocks(context, coded_state(state), *kernels.blockwise,
                  [&](int64_t at, int64_t n, auto& decoded) { update(at, n, {decoded[0].data(), false}); });
    return;
  }
  context.threads->parallel_for(0, gradient.elements(), element_grain,
                                [&](int64_t lo, int64_t hi) { update(lo, hi - lo, memory_at(state.momentum, lo)); });
}

// Calls update(state, gradient) once, or for each block of an 8-bit momentum with the decoded block in its place.
template <class Update>
void run_reference(Context& context, const MomentumState& state, const Tensor& gradient, Update update) {
  if (state.momentum.dtype != DType::u8) return update(state, gradient);
  update_blocks(context, coded_state(state), reference_blockwise, [&](int64_t at, int64_t n, auto& decoded) {
    const Tensor momentum{decoded[0].data(), DType::f32, {n}, gradient.device};
    const Tensor weight = state.weight ? state.weight.slice(at, at + n) : Tensor{};
    update(MomentumState{state.master.slice(at, at + n), momentum, weight}, gradient.slice(at, at + n));
  });
}

template <const MomentumKernels& K>
void run_sgd(Context& context, const MomentumState& state, const Tensor& gradient, SgdAttributes a) {
  if (!apply_decision(a.decision, a.gradient_scale)) return;
  run_update<SgdStep>(context, state, gradient, {a.momentum, a.weight_decay, a.lr, a.gradient_scale}, K, K.sgd);
}

template <const MomentumKernels& K>
void run_lion(Context& context, const MomentumState& state, const Tensor& gradient, LionAttributes a) {
  if (!apply_decision(a.decision, a.gradient_scale)) return;
  const double lr = static_cast<double>(a.lr);
  const LionStep step{.beta1 = a.beta1,
                      .one_minus_beta1 = static_cast<float>(1.0 - static_cast<double>(a.beta1)),
                      .beta2 = a.beta2,
                      .one_minus_beta2 = static_cast<float>(1.0 - static_cast<double>(a.beta2)),
                      .decay = static_cast<float>(1.0 - lr * static_cast<double>(a.weight_decay)),
                      .lr = a.lr,
                      .gradient_scale = a.gradient_scale};
  run_update<LionStep>(context, state, gradient, step, K, K.lion);
}

void set_master(const MomentumState& state, int64_t i, double master) {
  set_element(state.master, i, master);
  if (state.weight) set_element(state.weight, i, master);
}

void update_sgd(const MomentumState& state, const Tensor& gradient, const SgdAttributes& a) {
  for (int64_t i = 0; i < gradient.elements(); ++i) {
    const double master = element(state.master, i);
    const double g =
        element(gradient, i) * static_cast<double>(a.gradient_scale) + static_cast<double>(a.weight_decay) * master;
    const double m = static_cast<double>(a.momentum) * element(state.momentum, i) + g;
    set_element(state.momentum, i, m);
    set_master(state, i, master - static_cast<double>(a.lr) * m);
  }
}

void update_lion(const MomentumState& state, const Tensor& gradient, const LionAttributes& a) {
  const double beta1 = static_cast<double>(a.beta1);
  const double beta2 = static_cast<double>(a.beta2);
  const double lr = static_cast<double>(a.lr);
  for (int64_t i = 0; i < gradient.elements(); ++i) {
    const double g = element(gradient, i) * static_cast<double>(a.gradient_scale);
    const double m = element(state.momentum, i);
    const double direction = beta1 * m + (1.0 - beta1) * g;
    const double sign = direction > 0 ? 1 : direction < 0 ? -1 : 0;
    set_element(state.momentum, i, beta2 * m + (1.0 - beta2) * g);
    set_master(state, i, element(state.master, i) * (1.0 - lr * static_cast<double>(a.weight_decay)) - lr * sign);
  }
}

template <class Attributes, void (*update)(const MomentumState&, const Tensor&, const Attributes&)>
void reference(Context& context, const MomentumState& state, const Tensor& gradient, Attributes a) {
  if (!apply_decision(a.decision, a.gradient_scale)) return;
  run_reference(context, state, gradient, [&](const MomentumState& of, const Tensor& g) { update(of, g, a); });
}

}  // namespace

void register_momentum(ops::Registry& registry, Levels levels) {
  INGOT_ADD_LEVELS(registry, levels.best, ops::Sgd, run_sgd, momentum_kernels);
  INGOT_ADD_LEVELS(registry, levels.best, ops::Lion, run_lion, momentum_kernels);
  registry.add<ops::Sgd>(DeviceKind::cpu, "reference", reference<SgdAttributes, update_sgd>);
  registry.add<ops::Lion>(DeviceKind::cpu, "reference", reference<LionAttributes, update_lion>);
}

}  // namespace ingot::cpu
