#include "backend/gpu/optimizer/either.h"

namespace ingot::gpu {

struct SgdArgs {
  Either master;
  Either momentum_buffer;
  void* weight;  // bf16; may be null
  const float* gradient;
  float momentum;
  float weight_decay;
  float lr;
  float gradient_scale;
  const double* decision;  // output of decide_update; may be null
  int64_t n;
};

struct LionArgs {
  Either master;
  Either momentum_buffer;
  void* weight;  // bf16; may be null
  const float* gradient;
  float beta1;
  float one_minus_beta1;
  float beta2;
  float one_minus_beta2;
  float decay;  // 1 - lr * weight decay
  float lr;
  float gradient_scale;
  const double* decision;  // output of decide_update; may be null
  int64_t n;
};

}  // namespace ingot::gpu

GPU_KERNEL(sgd, SgdArgs, 256)
GPU_KERNEL(sgd_packed, SgdArgs, 256)
GPU_KERNEL(lion, LionArgs, 256)
GPU_KERNEL(lion_packed, LionArgs, 256)

#if GPU_KERNEL_PASS
namespace ingot::gpu::GPU_TARGET {
namespace {

template <int V>
GPU_FN void update_sgd(const SgdArgs& a) {
  const int64_t at = first_element<V>();
  if (at >= a.n || (a.decision != nullptr && a.decision[2] != 0)) return;
  const float scale = a.decision != nullptr ? static_cast<float>(a.decision[1]) : a.gradient_scale;
  const auto gradient = load_floats<V>(a.gradient + at);
  auto m = load_either<V>(a.momentum_buffer, at);
  auto master = load_either<V>(a.master, at);
  for (int i = 0; i < V; ++i) {
    const float g = gradient.at[i] * scale + master.at[i] * a.weight_decay;
    m.at[i] = m.at[i] * a.momentum + g;
    master.at[i] = master.at[i] - m.at[i] * a.lr;
  }
  store_either(a.momentum_buffer, at, m);
  store_either(a.master, at, master);
  if (a.weight != nullptr) store_floats(static_cast<Bf16*>(a.weight) + at, master);
}

template <int V>
GPU_FN void update_lion(const LionArgs& a) {
  const int64_t at = first_element<V>();
  if (at >= a.n || (a.decision != nullptr && a.decision[2] != 0)) return;
  const float scale = a.decision != nullptr ? static_cast<float>(a.decision[1]) : a.gradient_scale;
  const auto gradient = load_floats<V>(a.gradient + at);
  auto m = load_either<V>(a.momentum_buffer, at);
  auto master = load_either<V>(a.master, at);
  for (int i = 0; i < V; ++i) {
    const float g = gradient.at[i] * scale;
    const float direction = m.at[i] * a.beta1 + g * a.one_minus_beta1;
    const float move = direction > 0 ? a.lr : direction < 0 ? -a.lr : 0.0F;
    master.at[i] = master.at[i] * a.decay - move;
    m.at[i] = m.at[i] * a.beta2 + g * a.one_minus_beta2;
  }
  store_either(a.momentum_buffer, at, m);
  store_either(a.master, at, master);
  if (a.weight != nullptr) store_floats(static_cast<Bf16*>(a.weight) + at, master);
}

}  // namespace

GPU_KERNEL_BODY(sgd, SgdArgs) { update_sgd<1>(a); }
GPU_KERNEL_BODY(sgd_packed, SgdArgs) { update_sgd<4>(a); }
GPU_KERNEL_BODY(lion, LionArgs) { update_lion<1>(a); }
GPU_KERNEL_BODY(lion_packed, LionArgs) { update_lion<4>(a); }

}  // namespace ingot::gpu::GPU_TARGET

#else

#include "backend/gpu/ops.h"
#include "ops/momentum.h"

namespace ingot::gpu {
namespace {

using ops::Context;
using ops::MomentumState;

template <class Args>
void launch_update(Context& context, const Kernel<Args>& single, const Kernel<Args>& packed, const MomentumState& state,
                   const Tensor& gradient, const Args& args) {
  const bool vectors = is_vectorizable(args.n, {gradient, state.master, state.momentum, state.weight});
  launch(context, vectors ? packed : single, {blocks_of(args.n, vectors ? 4 * 256 : 256)}, args);
}

void run_sgd(Context& context, const MomentumState& state, const Tensor& gradient, ops::SgdAttributes attributes) {
  const SgdArgs args{.master = either(state.master),
                     .momentum_buffer = either(state.momentum),
                     .weight = state.weight.data,
                     .gradient = gradient.as<float>(),
                     .momentum = attributes.momentum,
                     .weight_decay = attributes.weight_decay,
                     .lr = attributes.lr,
                     .gradient_scale = attributes.gradient_scale,
                     .decision = attributes.decision ? attributes.decision.as<double>() : nullptr,
                     .n = gradient.elements()};
  launch_update(context, sgd, sgd_packed, state, gradient, args);
}

void run_lion(Context& context, const MomentumState& state, const Tensor& gradient, ops::LionAttributes attributes) {
  const auto lr = static_cast<double>(attributes.lr);
  const LionArgs args{.master = either(state.master),
                      .momentum_buffer = either(state.momentum),
                      .weight = state.weight.data,
                      .gradient = gradient.as<float>(),
                      .beta1 = attributes.beta1,
                      .one_minus_beta1 = static_cast<float>(1.0 - static_cast<double>(attributes.beta1)),
                      .beta2 = attributes.beta2,
                      .one_minus_beta2 = static_cast<float>(1.0 - static_cast<double>(attributes.beta2)),
                      .decay = static_cast<float>(1.0 - lr * static_cast<double>(attributes.weight_decay)),
                      .lr = attributes.lr,
                      .gradient_scale = attributes.gradient_scale,
                      .decision = attributes.decision ? attributes.decision.as<double>() : nullptr,
                      .n = gradient.elements()};
  launch_update(context, lion, lion_packed, state, gradient, args);
}

}  // namespace

void register_momentum(ops::Registry& registry, DeviceKind kind) {
  registry.add<ops::Sgd>(kind, "simt", run_sgd);
  registry.add<ops::Lion>(kind, "simt", run_lion);
}

}  // namespace ingot::gpu
#endif
