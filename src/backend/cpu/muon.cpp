#include "ops/muon.h"

#include <algorithm>
#include <cmath>

#include "backend/cpu/glue.h"
#include "backend/cpu/ops.h"
#include "backend/cpu/simd/muon.h"
#include "backend/cpu/update.h"

namespace ingot::cpu {
namespace {

using ops::Context;

constexpr double least_norm = 1e-7;

template <class Body>
void for_slices(Context& context, int64_t n, Body body) {
  context.threads->parallel_for(0, n, element_grain, [&](int64_t lo, int64_t hi) { body(lo, hi - lo); });
}

template <const MuonKernels& K>
void run_momentum(Context& context, const Tensor& update, const Tensor& momentum, const Tensor& scales,
                  const Tensor& gradient, ops::MuonMomentumAttributes a) {
  if (!apply_decision(a.decision, a.gradient_scale)) {
    for_slices(context, update.elements(),
               [&](int64_t at, int64_t n) { std::fill_n(update.as<float>() + at, n, 0.0F); });
    return;
  }
  const MuonMomentumStep step{a.momentum, static_cast<float>(1.0 - static_cast<double>(a.momentum)), a.gradient_scale};
  const auto run = [&](int64_t at, int64_t n, EitherMemory memory) {
    K.momentum(update.as<float>() + at, memory, gradient.as<float>() + at, n, step);
  };
  if (scales) {
    update_blocks<1>(context, {{{momentum, scales, true}}}, *K.blockwise,
                     [&](int64_t at, int64_t n, auto& decoded) { run(at, n, {decoded[0].data(), false}); });
    return;
  }
  for_slices(context, gradient.elements(), [&](int64_t at, int64_t n) { run(at, n, memory_at(momentum, at)); });
}

template <const MuonKernels& K>
void run_normalize(Context& context, const Tensor& y, const Tensor& x, const Tensor& squares) {
  const auto norm = static_cast<float>(std::max(std::sqrt(*squares.as<double>()), least_norm));
  for_slices(context, x.elements(),
             [&](int64_t at, int64_t n) { K.divide(memory_at(y, at), x.as<float>() + at, norm, n); });
}

template <const MuonKernels& K>
void run_combine(Context& context, const Tensor& y, const Tensor& x, const Tensor& p, ops::MuonCombineAttributes c) {
  for_slices(context, p.elements(), [&](int64_t at, int64_t n) {
    K.combine(memory_at(y, at), memory_at(x, at), p.as<float>() + at, c.a, c.b, n);
  });
}

template <const MuonKernels& K>
void run_apply(Context& context, const Tensor& master, const Tensor& weight, const Tensor& update,
               ops::MuonApplyAttributes a) {
  if (is_halted(a.decision)) return;
  const double lr = static_cast<double>(a.lr);
  const auto decay = static_cast<float>(1.0 - lr * static_cast<double>(a.weight_decay));
  const auto step_size = static_cast<float>(lr * static_cast<double>(a.scale));
  for_slices(context, update.elements(), [&](int64_t at, int64_t n) {
    K.apply(memory_at(master, at), weight_at(weight, at), update.as<float>() + at, decay, step_size, n);
  });
}

void reference_momentum(Context& context, const Tensor& update, const Tensor& momentum, const Tensor& scales,
                        const Tensor& gradient, ops::MuonMomentumAttributes a) {
  if (!apply_decision(a.decision, a.gradient_scale)) {
    for (int64_t i = 0; i < update.elements(); ++i) set_element(update, i, 0);
    return;
  }
  if (scales) {
    a.decision = {};
    update_blocks<1>(context, {{{momentum, scales, true}}}, reference_blockwise,
                     [&](int64_t at, int64_t n, auto& decoded) {
                       const Tensor block{decoded[0].data(), DType::f32, {n}, gradient.device};
                       reference_momentum(context, update.slice(at, at + n), block, {}, gradient.slice(at, at + n), a);
                     });
    return;
  }
  const double share = static_cast<double>(a.momentum);
  for (int64_t i = 0; i < gradient.elements(); ++i) {
    const double g = element(gradient, i) * static_cast<double>(a.gradient_scale);
    const double m = share * element(momentum, i) + (1.0 - share) * g;
    set_element(momentum, i, m);
    set_element(update, i, share * m + (1.0 - share) * g);
  }
}

void reference_normalize(Context&, const Tensor& y, const Tensor& x, const Tensor& squares) {
  const double norm = std::max(std::sqrt(*squares.as<double>()), least_norm);
  for (int64_t i = 0; i < x.elements(); ++i) set_element(y, i, element(x, i) / norm);
}

void reference_combine(Context&, const Tensor& y, const Tensor& x, const Tensor& p, ops::MuonCombineAttributes c) {
  for (int64_t i = 0; i < p.elements(); ++i) {
    set_element(y, i, static_cast<double>(c.a) * element(x, i) + static_cast<double>(c.b) * element(p, i));
  }
}

void reference_apply(Context&, const Tensor& master, const Tensor& weight, const Tensor& update,
                     ops::MuonApplyAttributes a) {
  if (is_halted(a.decision)) return;
  const double lr = static_cast<double>(a.lr);
  for (int64_t i = 0; i < update.elements(); ++i) {
    double value = element(master, i);
    value -= lr * static_cast<double>(a.weight_decay) * value;
    value -= lr * static_cast<double>(a.scale) * element(update, i);
    set_element(master, i, value);
    if (weight) set_element(weight, i, value);
  }
}

}  // namespace

void register_muon(ops::Registry& registry, Levels levels) {
  INGOT_ADD_LEVELS(registry, levels.best, ops::MuonMomentum, run_momentum, muon_kernels);
  INGOT_ADD_LEVELS(registry, levels.best, ops::MuonNormalize, run_normalize, muon_kernels);
  INGOT_ADD_LEVELS(registry, levels.best, ops::MuonCombine, run_combine, muon_kernels);
  INGOT_ADD_LEVELS(registry, levels.best, ops::MuonApply, run_apply, muon_kernels);
  registry.add<ops::MuonMomentum>(DeviceKind::cpu, "reference", reference_momentum);
  registry.add<ops::MuonNormalize>(DeviceKind::cpu, "reference", reference_normalize);
  registry.add<ops::MuonCombine>(DeviceKind::cpu, "reference", reference_combine);
  registry.add<ops::MuonApply>(DeviceKind::cpu, "reference", reference_apply);
}

}  // namespace ingot::cpu
