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

template <class Step>
void for_slices(Context& context, const MomentumState& state, const Tensor& gradient, const Step& step,
                void (*kernel)(MomentumMemory, const float*, int64_t, Step)) {
  context.threads->parallel_for(0, gradient.elements(), element_grain, [&](int64_t lo, int64_t hi) {
    const MomentumMemory memory{.master = address_of(state.master, lo),
                                .momentum = address_of(state.momentum, lo),
                                .master_bf16 = state.master.dtype == DType::bf16,
                                .momentum_bf16 = state.momentum.dtype == DType::bf16,
                                .weight = state.weight ? bf16(state.weight) + lo : nullptr};
    kernel(memory, gradient.as<float>() + lo, hi - lo, step);
  });
}

template <const MomentumKernels& K>
void run_sgd(Context& context, const MomentumState& state, const Tensor& gradient, SgdAttributes a) {
  if (!apply_decision(a.decision, a.gradient_scale)) return;
  for_slices<SgdStep>(context, state, gradient, {a.momentum, a.weight_decay, a.lr, a.gradient_scale}, K.sgd);
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
  for_slices<LionStep>(context, state, gradient, step, K.lion);
}

void set_master(const MomentumState& state, int64_t i, double master) {
  set_element(state.master, i, master);
  if (state.weight) set_element(state.weight, i, master);
}

void reference_sgd(Context&, const MomentumState& state, const Tensor& gradient, SgdAttributes a) {
  if (!apply_decision(a.decision, a.gradient_scale)) return;
  for (int64_t i = 0; i < gradient.elements(); ++i) {
    const double master = element(state.master, i);
    const double g =
        element(gradient, i) * static_cast<double>(a.gradient_scale) + static_cast<double>(a.weight_decay) * master;
    const double m = static_cast<double>(a.momentum) * element(state.momentum, i) + g;
    set_element(state.momentum, i, m);
    set_master(state, i, master - static_cast<double>(a.lr) * m);
  }
}

void reference_lion(Context&, const MomentumState& state, const Tensor& gradient, LionAttributes a) {
  if (!apply_decision(a.decision, a.gradient_scale)) return;
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

}  // namespace

void register_momentum(ops::Registry& registry, Levels levels) {
  INGOT_ADD_LEVELS(registry, levels.best, ops::Sgd, run_sgd, momentum_kernels);
  INGOT_ADD_LEVELS(registry, levels.best, ops::Lion, run_lion, momentum_kernels);
  registry.add<ops::Sgd>(DeviceKind::cpu, "reference", reference_sgd);
  registry.add<ops::Lion>(DeviceKind::cpu, "reference", reference_lion);
}

}  // namespace ingot::cpu
