#include "backend/gpu/optimizer/update.h"

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

// With an 8-bit momentum in place of update.momentum_buffer.
template <class Args>
struct MomentumBlockwiseArgs {
  Args update;
  BlockwiseState momentum_buffer;
};
using SgdBlockwiseArgs = MomentumBlockwiseArgs<SgdArgs>;
using LionBlockwiseArgs = MomentumBlockwiseArgs<LionArgs>;

}  // namespace ingot::gpu

GPU_KERNEL(sgd, SgdArgs, 256)
GPU_KERNEL(sgd_packed, SgdArgs, 256)
GPU_KERNEL(sgd_blockwise, SgdBlockwiseArgs, 256)
GPU_KERNEL(lion, LionArgs, 256)
GPU_KERNEL(lion_packed, LionArgs, 256)
GPU_KERNEL(lion_blockwise, LionBlockwiseArgs, 256)

#if GPU_KERNEL_PASS
namespace ingot::gpu::GPU_TARGET {
namespace {

template <int V>
GPU_FN void update_elements(const SgdArgs& a, const Gradients<V>& gradient, Floats<V>& m, Floats<V>& master) {
  for (int i = 0; i < V; ++i) {
    const float g = gradient.sum.at[i] * gradient.scale + master.at[i] * a.weight_decay;
    m.at[i] = m.at[i] * a.momentum + g;
    master.at[i] = master.at[i] - m.at[i] * a.lr;
  }
}

template <int V>
GPU_FN void update_elements(const LionArgs& a, const Gradients<V>& gradient, Floats<V>& m, Floats<V>& master) {
  for (int i = 0; i < V; ++i) {
    const float g = gradient.sum.at[i] * gradient.scale;
    const float direction = m.at[i] * a.beta1 + g * a.one_minus_beta1;
    const float step = direction > 0 ? a.lr : direction < 0 ? -a.lr : 0.0F;
    master.at[i] = master.at[i] * a.decay - step;
    m.at[i] = m.at[i] * a.beta2 + g * a.one_minus_beta2;
  }
}

template <int V, class Args>
GPU_FN void update(const Args& a) {
  const int64_t at = first_element<V>();
  if (at >= a.n || is_skipped(a.decision)) return;
  const auto gradient = load_gradients<V>(a, at);
  auto m = load_either<V>(a.momentum_buffer, at);
  auto master = load_either<V>(a.master, at);
  update_elements(a, gradient, m, master);
  store_either(a.momentum_buffer, at, m);
  store_masters(a.master, a.weight, at, master);
}

template <class Args>
GPU_FN void update_blockwise(const MomentumBlockwiseArgs<Args>& args) {
  const Args& a = args.update;
  if (is_skipped(a.decision)) return;
  GPU_SHARED(EncodeStorage, shared);
  const int64_t at = first_element<1>();
  Floats<1> m = {};
  if (at < a.n) {
    const auto gradient = load_gradients<1>(a, at);
    m = decode(args.momentum_buffer, at);
    auto master = load_either<1>(a.master, at);
    update_elements(a, gradient, m, master);
    store_masters(a.master, a.weight, at, master);
  }
  block_barrier();  // all threads have read the scale
  encode(shared, args.momentum_buffer, m.at[0], at, a.n);
}

}  // namespace

GPU_KERNEL_BODY(sgd, SgdArgs) { update<1>(a); }
GPU_KERNEL_BODY(sgd_packed, SgdArgs) { update<4>(a); }
GPU_KERNEL_BODY(sgd_blockwise, SgdBlockwiseArgs) { update_blockwise(a); }
GPU_KERNEL_BODY(lion, LionArgs) { update<1>(a); }
GPU_KERNEL_BODY(lion_packed, LionArgs) { update<4>(a); }
GPU_KERNEL_BODY(lion_blockwise, LionBlockwiseArgs) { update_blockwise(a); }

}  // namespace ingot::gpu::GPU_TARGET

#else

#include "backend/gpu/ops.h"
#include "ops/momentum.h"

namespace ingot::gpu {
namespace {

using ops::Context;
using ops::MomentumState;

template <class Args>
void launch_momentum(Context& context, const Kernel<Args>& single, const Kernel<Args>& packed,
                     const Kernel<MomentumBlockwiseArgs<Args> >& blockwise, const MomentumState& state,
                     const Tensor& gradient, const Args& args) {
  if (state.momentum.dtype == DType::u8) {
    launch(context, blockwise, {ops::blockwise_blocks(args.n)},
           {args, blockwise_state(state.momentum, state.momentum_scales, true)});
    return;
  }
  launch_update(context, single, packed, {gradient, state.master, state.momentum, state.weight}, args);
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
                     .decision = decision_of(attributes.decision),
                     .n = gradient.elements()};
  launch_momentum(context, sgd, sgd_packed, sgd_blockwise, state, gradient, args);
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
                      .decision = decision_of(attributes.decision),
                      .n = gradient.elements()};
  launch_momentum(context, lion, lion_packed, lion_blockwise, state, gradient, args);
}

}  // namespace

void register_momentum(ops::Registry& registry, DeviceKind kind) {
  registry.add<ops::Sgd>(kind, "simt", run_sgd);
  registry.add<ops::Lion>(kind, "simt", run_lion);
}

}  // namespace ingot::gpu
#endif
