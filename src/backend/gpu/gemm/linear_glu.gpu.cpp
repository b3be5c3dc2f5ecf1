// The gated part of an MLP for few tokens in one launch: skinny_gemm.h for both layers, whose spans a warp processes in
// turn, and the activation of their sums. For the types that models are decoded with. The bits are those of the layers
// and the activation in launches of their own.
#include "backend/gpu/elementwise/activation_functions.h"
#include "backend/gpu/gemm/skinny_gemm.h"

namespace ingot::gpu {

struct SkinnyGluArgs {
  SkinnyGemmArgs gate;  // with the result's y, of x's type
  const void* up;       // the other layer's weight, of the same shape and storage
  ActivationType activation;
};

}  // namespace ingot::gpu

GPU_KERNEL(skinny_glu_f32_f32, SkinnyGluArgs, 256)
GPU_KERNEL(skinny_glu_bf16_bf16, SkinnyGluArgs, 256)
GPU_KERNEL(skinny_glu_bf16_q8_0, SkinnyGluArgs, 256)
GPU_KERNEL(skinny_glu_bf16_q4_0, SkinnyGluArgs, 256)
GPU_KERNEL(skinny_glu_bf16_q4_k, SkinnyGluArgs, 256)
GPU_KERNEL(skinny_glu_bf16_q6_k, SkinnyGluArgs, 256)
GPU_KERNEL(skinny_glu_f16_f16, SkinnyGluArgs, 256)

#if GPU_KERNEL_PASS
namespace ingot::gpu::GPU_TARGET {
namespace {

template <class X, QuantFormat S>
GPU_FN void skinny_glu(const SkinnyGluArgs& args) {
  constexpr int outputs = skinny_rows * skinny_rows;  // of a warp and layer
  static_assert(Span<S>::shared_bytes >= 2 * outputs * static_cast<int>(sizeof(float)));
  GPU_SHARED(SharedStorage<S>, shared);
  const SkinnyGemmArgs& gate = args.gate;
  SkinnyGemmArgs up = args.gate;
  up.weight = args.up;
  const int splits = gate.splits, groups = skinny_warps / splits;  // of 16 rows
  const int64_t first_group = static_cast<int64_t>(block_index()) * groups;
  const int64_t first_row = (first_group + warp_index() / splits) * skinny_rows;
  const int spans = (gate.in + Span<S>::elements - 1) / Span<S>::elements;
  uint8_t* warp_shared = shared.of_warp[warp_index()];

  Sums<X> gate_sums, up_sums;
  int span = warp_index() % splits;
  Span<S> next = {};
  if (span < spans) next = load_span<S>(gate, first_row, span);
  for (; span < spans; span += splits) {
    const int column = span * Span<S>::elements;
    const SharedSpan stored{warp_shared, first_row, column, gate.in - column};
    store_span<S>(warp_shared, next);
    next = load_span<S>(up, first_row, span);
    warp_barrier();
    gate_sums.template add<S>(gate, stored);
    warp_barrier();
    store_span<S>(warp_shared, next);
    if (span + splits < spans) next = load_span<S>(gate, first_row, span + splits);
    warp_barrier();
    up_sums.template add<S>(up, stored);
    warp_barrier();
  }
  auto* sums = reinterpret_cast<float*>(warp_shared);
  gate_sums.store(sums);
  up_sums.store(sums + outputs);
  block_barrier();

  const int64_t token = thread_index() / skinny_rows;
  for (int group = 0; group < groups; ++group) {
    const int64_t row = (first_group + group) * skinny_rows + thread_index() % skinny_rows;
    if (token >= gate.tokens || row >= gate.out) continue;
    float of_gate = 0, of_up = 0;
    for (int w = group * splits; w < (group + 1) * splits; ++w) {
      const auto* of_warp = reinterpret_cast<const float*>(shared.of_warp[w]);
      of_gate += of_warp[thread_index()];
      of_up += of_warp[outputs + thread_index()];
    }
    // Rounded as by the layers alone.
    of_gate = to_float(from_float<X>(of_gate));
    of_up = to_float(from_float<X>(of_up));
    with_activation(args.activation, [&](auto activation) {
      static_cast<X*>(gate.y)[token * gate.out + row] = from_float<X>(decltype(activation)::value(of_gate) * of_up);
    });
  }
}

}  // namespace

GPU_KERNEL_BODY(skinny_glu_f32_f32, SkinnyGluArgs) { skinny_glu<float, QuantFormat::f32>(a); }
GPU_KERNEL_BODY(skinny_glu_bf16_bf16, SkinnyGluArgs) { skinny_glu<Bf16, QuantFormat::bf16>(a); }
GPU_KERNEL_BODY(skinny_glu_bf16_q8_0, SkinnyGluArgs) { skinny_glu<Bf16, QuantFormat::q8_0>(a); }
GPU_KERNEL_BODY(skinny_glu_bf16_q4_0, SkinnyGluArgs) { skinny_glu<Bf16, QuantFormat::q4_0>(a); }
GPU_KERNEL_BODY(skinny_glu_bf16_q4_k, SkinnyGluArgs) { skinny_glu<Bf16, QuantFormat::q4_k>(a); }
GPU_KERNEL_BODY(skinny_glu_bf16_q6_k, SkinnyGluArgs) { skinny_glu<Bf16, QuantFormat::q6_k>(a); }
GPU_KERNEL_BODY(skinny_glu_f16_f16, SkinnyGluArgs) { skinny_glu<F16, QuantFormat::f16>(a); }

}  // namespace ingot::gpu::GPU_TARGET

#else

#include "backend/gpu/ops.h"
#include "ops/linear_glu.h"

namespace ingot::gpu {
namespace {

// Null where there is none.
const Kernel<SkinnyGluArgs>* kernel_of(DType x, StorageType weight) {
  if (x == DType::f32) return weight == StorageType::f32 ? &skinny_glu_f32_f32 : nullptr;
  if (x == DType::f16) return weight == StorageType::f16 ? &skinny_glu_f16_f16 : nullptr;
  switch (weight) {
    case StorageType::bf16: return &skinny_glu_bf16_bf16;
    case StorageType::q8_0: return &skinny_glu_bf16_q8_0;
    case StorageType::q4_0: return &skinny_glu_bf16_q4_0;
    case StorageType::q4_k: return &skinny_glu_bf16_q4_k;
    case StorageType::q6_k: return &skinny_glu_bf16_q6_k;
    default: return nullptr;
  }
}

bool decline(const ops::Context& context, const Tensor&, const Tensor& x, const ops::GatedLinears& layers,
             ops::LinearGluAttributes attributes, ops::Refusal refuse) {
  if (attributes.group.int8_activations) return refuse("does not round activations to int8");
  for (const Weight& weight : {layers.gate, layers.up}) {
    if (skinny_declines(context, x, weight, x.shape[0], attributes.group.linear.row_invariant, refuse)) return true;
  }
  if (layers.gate.storage != layers.up.storage || kernel_of(x.dtype, layers.gate.storage) == nullptr)
    return refuse("has no kernel for these types");
  return false;
}

void run(ops::Context& context, const Tensor& y, const Tensor& x, const ops::GatedLinears& layers,
         ops::LinearGluAttributes attributes) {
  const SkinnyGluArgs args{.gate = skinny_args(context, y, x, layers.gate, nullptr),
                           .up = layers.up.data,
                           .activation = activation_type_of(attributes.activation)};
  launch(context, *kernel_of(x.dtype, layers.gate.storage), {skinny_blocks(context, args.gate)}, args);
}

}  // namespace

void register_linear_glu(ops::Registry& registry, DeviceKind kind) {
  registry.add<ops::LinearGlu>(kind, "few", run, decline);
  ops::add_linear_glu_apart(registry, kind);
}

}  // namespace ingot::gpu
#endif
