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

EitherMemory memory_at(const Tensor& tensor, int64_t i) { return {address_of(tensor, i), tensor.dtype == DType::bf16}; }

template <class Body>
void for_slices(Context& context, int64_t n, Body body) {
  context.threads->parallel_for(0, n, element_grain, [&](int64_t lo, int64_t hi) { body(lo, hi - lo); });
}

template <const MuonKernels& K>
void run_momentum(Context& context, const Tensor& update, const Tensor& momentum, const Tensor& gradient,
                  ops::MuonMomentumAttributes a) {
  const bool goes_on = apply_decision(a.decision, a.gradient_scale);
  const MuonMomentumStep step{a.momentum, static_cast<float>(1.0 - static_cast<double>(a.momentum)), a.gradient_scale};
  for_slices(context, gradient.elements(), [&](int64_t at, int64_t n) {
    if (goes_on) {
      K.momentum(update.as<float>() + at, memory_at(momentum, at), gradient.as<float>() + at, n, step);
    } else {
      std::fill_n(update.as<float>() + at, n, 0.0F);
    }
  });
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
  float unused = 0;
  if (!apply_decision(a.decision, unused)) return;
  const double lr = static_cast<double>(a.lr);
  const auto decay = static_cast<float>(1.0 - lr * static_cast<double>(a.weight_decay));
  const auto step_size = static_cast<float>(lr * static_cast<double>(a.scale));
  for_slices(context, update.elements(), [&](int64_t at, int64_t n) {
    K.apply(memory_at(master, at), weight ? bf16(weight) + at : nullptr, update.as<float>() + at, decay, step_size, n);
  });
}

void reference_momentum(Context&, const Tensor& update, const Tensor& momentum, const Tensor& gradient,
                        ops::MuonMomentumAttributes a) {
  const bool goes_on = apply_decision(a.decision, a.gradient_scale);
  const double share = static_cast<double>(a.momentum);
  for (int64_t i = 0; i < gradient.elements(); ++i) {
    const double g = element(gradient, i) * static_cast<double>(a.gradient_scale);
    const double m = share * element(momentum, i) + (1.0 - share) * g;
    if (goes_on) set_element(momentum, i, m);
    set_element(update, i, goes_on ? share * m + (1.0 - share) * g : 0.0);
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
  float unused = 0;
  if (!apply_decision(a.decision, unused)) return;
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
