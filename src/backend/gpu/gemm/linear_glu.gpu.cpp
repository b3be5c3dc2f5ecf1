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

#define SKINNY_GLU_KERNEL(X, S, T) GPU_KERNEL(skinny_glu_##X##_##S, SkinnyGluArgs, 256)
SKINNY_DECODING_TYPES(SKINNY_GLU_KERNEL)

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

#define SKINNY_GLU_BODY(X, S, T) \
  GPU_KERNEL_BODY(skinny_glu_##X##_##S, SkinnyGluArgs) { skinny_glu<T, QuantFormat::S>(a); }
SKINNY_DECODING_TYPES(SKINNY_GLU_BODY)

}  // namespace ingot::gpu::GPU_TARGET

#else

#include "backend/gpu/ops.h"
#include "ops/linear_glu.h"

namespace ingot::gpu {
namespace {

#define SKINNY_GLU_ENTRY(X, S, T) {DType::X, StorageType::S, &skinny_glu_##X##_##S},
constexpr SkinnyDecodingKernel<SkinnyGluArgs> kernels[] = {SKINNY_DECODING_TYPES(SKINNY_GLU_ENTRY)};

bool decline(const ops::Context& context, const Tensor&, const Tensor& x, const ops::GatedLinears& layers,
             ops::LinearGluAttributes attributes, ops::Refusal refuse) {
  if (attributes.group.int8_activations) return refuse("does not round activations to int8");
  for (const Weight& weight : {layers.gate, layers.up}) {
    if (skinny_declines(context, x, weight, x.shape[0], attributes.group.linear.row_invariant, refuse)) return true;
  }
  if (layers.gate.storage != layers.up.storage || kernel_of(kernels, x.dtype, layers.gate.storage) == nullptr)
    return refuse("has no kernel for these types");
  return false;
}

void run(ops::Context& context, const Tensor& y, const Tensor& x, const ops::GatedLinears& layers,
         ops::LinearGluAttributes attributes) {
  const SkinnyGluArgs args{.gate = skinny_args(context, y, x, layers.gate, nullptr),
                           .up = layers.up.data,
                           .activation = activation_type_of(attributes.activation)};
  launch(context, *kernel_of(kernels, x.dtype, layers.gate.storage), {skinny_blocks(context, args.gate)}, args);
}

}  // namespace

void register_linear_glu(ops::Registry& registry, DeviceKind kind) {
  registry.add<ops::LinearGlu>(kind, "few", run, decline);
  ops::add_linear_glu_joined(registry, kind);
  ops::add_linear_glu_apart(registry, kind);
}

}  // namespace ingot::gpu
#endif
