#include "backend/gpu/optimizer/update.h"

namespace ingot::gpu {

struct MuonMomentumArgs {
  float* update;
  Either momentum_buffer;
  const float* gradient;
  float momentum;
  float one_minus_momentum;
  float gradient_scale;
  const double* decision;  // output of decide_update; may be null
  int64_t n;
};

// With an 8-bit momentum in place of update.momentum_buffer.
struct MuonMomentumBlockwiseArgs {
  MuonMomentumArgs update;
  BlockwiseState momentum_buffer;
};

struct MuonNormalizeArgs {
  Either y;
  const float* x;
  const double* squares;
  int64_t n;
};

struct MuonCombineArgs {
  Either y;
  Either x;
  const float* p;
  float a;
  float b;
  int64_t n;
};

struct MuonApplyArgs {
  Either master;
  void* weight;  // bf16; may be null
  const float* update;
  float decay;      // 1 - lr * weight decay
  float step_size;  // lr * scale
  const double* decision;
  int64_t n;
};

}  // namespace ingot::gpu

GPU_KERNEL(muon_momentum, MuonMomentumArgs, 256)
GPU_KERNEL(muon_momentum_packed, MuonMomentumArgs, 256)
GPU_KERNEL(muon_momentum_blockwise, MuonMomentumBlockwiseArgs, 256)
GPU_KERNEL(muon_normalize, MuonNormalizeArgs, 256)
GPU_KERNEL(muon_normalize_packed, MuonNormalizeArgs, 256)
GPU_KERNEL(muon_combine, MuonCombineArgs, 256)
GPU_KERNEL(muon_combine_packed, MuonCombineArgs, 256)
GPU_KERNEL(muon_apply, MuonApplyArgs, 256)
GPU_KERNEL(muon_apply_packed, MuonApplyArgs, 256)

#if GPU_KERNEL_PASS
namespace ingot::gpu::GPU_TARGET {
namespace {

// The update; m becomes the new momentum.
template <int V>
GPU_FN Floats<V> update_elements(const MuonMomentumArgs& a, const Gradients<V>& gradient, Floats<V>& m) {
  Floats<V> update;
  for (int i = 0; i < V; ++i) {
    const float g = gradient.sum.at[i] * gradient.scale * a.one_minus_momentum;
    m.at[i] = m.at[i] * a.momentum + g;
    update.at[i] = m.at[i] * a.momentum + g;
  }
  return update;
}

template <int V>
GPU_FN void momentum(const MuonMomentumArgs& a) {
  const int64_t at = first_element<V>();
  if (at >= a.n) return;
  Floats<V> update = {};
  if (!is_skipped(a.decision)) {
    const auto gradient = load_gradients<V>(a, at);
    auto m = load_either<V>(a.momentum_buffer, at);
    update = update_elements(a, gradient, m);
    store_either(a.momentum_buffer, at, m);
  }
  store_floats(a.update + at, update);
}

GPU_FN void momentum_blockwise(const MuonMomentumBlockwiseArgs& args) {
  const MuonMomentumArgs& a = args.update;
  GPU_SHARED(EncodeStorage, shared);
  const int64_t at = first_element<1>();
  const bool skipped = is_skipped(a.decision);
  Floats<1> m = {};
  if (at < a.n) {
    Floats<1> update = {};
    if (!skipped) {
      const auto gradient = load_gradients<1>(a, at);
      m = decode(args.momentum_buffer, at);
      update = update_elements(a, gradient, m);
    }
    store_floats(a.update + at, update);
  }
  if (skipped) return;
  block_barrier();  // all threads have read the scale
  encode(shared, args.momentum_buffer, m.at[0], at, a.n);
}

template <int V>
GPU_FN void normalize(const MuonNormalizeArgs& a) {
  const int64_t at = first_element<V>();
  if (at >= a.n) return;
  const double root = square_root(*a.squares);
  const auto norm = static_cast<float>(root > 1e-7 ? root : 1e-7);
  store_either(a.y, at, each_of<V>([norm](float x) { return x / norm; }, load_floats<V>(a.x + at)));
}

template <int V>
GPU_FN void combine(const MuonCombineArgs& a) {
  const int64_t at = first_element<V>();
  if (at >= a.n) return;
  const auto sum = [&](float x, float p) { return x * a.a + p * a.b; };
  store_either(a.y, at, each_of<V>(sum, load_either<V>(a.x, at), load_floats<V>(a.p + at)));
}

template <int V>
GPU_FN void apply(const MuonApplyArgs& a) {
  const int64_t at = first_element<V>();
  if (at >= a.n || is_skipped(a.decision)) return;
  const auto step = [&](float master, float update) { return master * a.decay - update * a.step_size; };
  const auto master = each_of<V>(step, load_either<V>(a.master, at), load_floats<V>(a.update + at));
  store_masters(a.master, a.weight, at, master);
}

}  // namespace

GPU_KERNEL_BODY(muon_momentum, MuonMomentumArgs) { momentum<1>(a); }
GPU_KERNEL_BODY(muon_momentum_packed, MuonMomentumArgs) { momentum<4>(a); }
GPU_KERNEL_BODY(muon_momentum_blockwise, MuonMomentumBlockwiseArgs) { momentum_blockwise(a); }
GPU_KERNEL_BODY(muon_normalize, MuonNormalizeArgs) { normalize<1>(a); }
GPU_KERNEL_BODY(muon_normalize_packed, MuonNormalizeArgs) { normalize<4>(a); }
GPU_KERNEL_BODY(muon_combine, MuonCombineArgs) { combine<1>(a); }
GPU_KERNEL_BODY(muon_combine_packed, MuonCombineArgs) { combine<4>(a); }
GPU_KERNEL_BODY(muon_apply, MuonApplyArgs) { apply<1>(a); }
GPU_KERNEL_BODY(muon_apply_packed, MuonApplyArgs) { apply<4>(a); }

}  // namespace ingot::gpu::GPU_TARGET

#else

#include "backend/gpu/ops.h"
#include "ops/muon.h"

namespace ingot::gpu {
namespace {

using ops::Context;

void run_momentum(Context& context, const Tensor& update, const Tensor& momentum, const Tensor& scales,
                  const Tensor& gradient, ops::MuonMomentumAttributes attributes) {
  const MuonMomentumArgs args{update.as<float>(),
                              either(momentum),
                              gradient.as<float>(),
                              attributes.momentum,
                              static_cast<float>(1.0 - static_cast<double>(attributes.momentum)),
                              attributes.gradient_scale,
                              decision_of(attributes.decision),
                              gradient.elements()};
  if (scales) {
    launch(context, muon_momentum_blockwise, {ops::blockwise_blocks(args.n)},
           {args, blockwise_state(momentum, scales, true)});
    return;
  }
  launch_update(context, muon_momentum, muon_momentum_packed, {update, momentum, gradient}, args);
}

void run_normalize(Context& context, const Tensor& y, const Tensor& x, const Tensor& squares) {
  const MuonNormalizeArgs args{either(y), x.as<float>(), squares.as<double>(), x.elements()};
  launch_update(context, muon_normalize, muon_normalize_packed, {y, x}, args);
}

void run_combine(Context& context, const Tensor& y, const Tensor& x, const Tensor& p,
                 ops::MuonCombineAttributes attributes) {
  const MuonCombineArgs args{either(y), either(x), p.as<float>(), attributes.a, attributes.b, p.elements()};
  launch_update(context, muon_combine, muon_combine_packed, {y, x, p}, args);
}

void run_apply(Context& context, const Tensor& master, const Tensor& weight, const Tensor& update,
               ops::MuonApplyAttributes attributes) {
  const auto lr = static_cast<double>(attributes.lr);
  const MuonApplyArgs args{either(master),
                           weight.data,
                           update.as<float>(),
                           static_cast<float>(1.0 - lr * static_cast<double>(attributes.weight_decay)),
                           static_cast<float>(lr * static_cast<double>(attributes.scale)),
                           decision_of(attributes.decision),
                           update.elements()};
  launch_update(context, muon_apply, muon_apply_packed, {master, weight, update}, args);
}

}  // namespace

void register_muon(ops::Registry& registry, DeviceKind kind) {
  registry.add<ops::MuonMomentum>(kind, "simt", run_momentum);
  registry.add<ops::MuonNormalize>(kind, "simt", run_normalize);
  registry.add<ops::MuonCombine>(kind, "simt", run_combine);
  registry.add<ops::MuonApply>(kind, "simt", run_apply);
}

}  // namespace ingot::gpu
#endif
