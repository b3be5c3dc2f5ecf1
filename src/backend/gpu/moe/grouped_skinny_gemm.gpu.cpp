// Linear layers of experts for few tokens: skinny_gemm.h for the rows of each expert, in one launch. Block y is an
// expert. For the types that models are decoded with; others are multiplied by tiles (grouped_linear.gpu.cpp).
#include "backend/gpu/gemm/skinny_gemm.h"

namespace ingot::gpu {

struct GroupedSkinnyArgs {
  SkinnyGemmArgs gemm;     // with the first expert's weight, and all rows of x and y; tokens is not used
  const int32_t* offsets;  // [experts + 1]
  int64_t expert_bytes;    // from one expert's weight to the next
};

}  // namespace ingot::gpu

GPU_KERNEL(grouped_skinny_f32_f32, GroupedSkinnyArgs, 256)
GPU_KERNEL(grouped_skinny_bf16_bf16, GroupedSkinnyArgs, 256)
GPU_KERNEL(grouped_skinny_bf16_q8_0, GroupedSkinnyArgs, 256)
GPU_KERNEL(grouped_skinny_bf16_q4_0, GroupedSkinnyArgs, 256)
GPU_KERNEL(grouped_skinny_bf16_q4_k, GroupedSkinnyArgs, 256)
GPU_KERNEL(grouped_skinny_bf16_q6_k, GroupedSkinnyArgs, 256)
GPU_KERNEL(grouped_skinny_f16_f16, GroupedSkinnyArgs, 256)

#if GPU_KERNEL_PASS
namespace ingot::gpu::GPU_TARGET {
namespace {

template <class X, QuantFormat S>
GPU_FN void grouped(const GroupedSkinnyArgs& args) {
  const int expert = block_index_y();
  const int begin = args.offsets[expert];
  const int count = args.offsets[expert + 1] - begin;
  if (count == 0) return;
  SkinnyGemmArgs a = args.gemm;
  a.tokens = count < skinny_rows ? count : skinny_rows;
  a.x = static_cast<const X*>(a.x) + static_cast<int64_t>(begin) * a.in;
  const int64_t y_bytes = begin * a.out * (a.y_f32 ? 4 : static_cast<int>(sizeof(X)));
  a.y = static_cast<uint8_t*>(a.y) + y_bytes;
  if (a.addend != nullptr) a.addend = static_cast<const uint8_t*>(a.addend) + y_bytes;
  a.weight = static_cast<const uint8_t*>(a.weight) + expert * args.expert_bytes;
  skinny_gemm<X, S>(a, block_index());
}

}  // namespace

GPU_KERNEL_BODY(grouped_skinny_f32_f32, GroupedSkinnyArgs) { grouped<float, QuantFormat::f32>(a); }
GPU_KERNEL_BODY(grouped_skinny_bf16_bf16, GroupedSkinnyArgs) { grouped<Bf16, QuantFormat::bf16>(a); }
GPU_KERNEL_BODY(grouped_skinny_bf16_q8_0, GroupedSkinnyArgs) { grouped<Bf16, QuantFormat::q8_0>(a); }
GPU_KERNEL_BODY(grouped_skinny_bf16_q4_0, GroupedSkinnyArgs) { grouped<Bf16, QuantFormat::q4_0>(a); }
GPU_KERNEL_BODY(grouped_skinny_bf16_q4_k, GroupedSkinnyArgs) { grouped<Bf16, QuantFormat::q4_k>(a); }
GPU_KERNEL_BODY(grouped_skinny_bf16_q6_k, GroupedSkinnyArgs) { grouped<Bf16, QuantFormat::q6_k>(a); }
GPU_KERNEL_BODY(grouped_skinny_f16_f16, GroupedSkinnyArgs) { grouped<F16, QuantFormat::f16>(a); }

}  // namespace ingot::gpu::GPU_TARGET

#else

#include "backend/gpu/moe/expert_runs.h"
#include "backend/gpu/ops.h"
#include "ops/grouped_linear.h"

namespace ingot::gpu {
namespace {

// Null where there is none.
const Kernel<GroupedSkinnyArgs>* kernel_of(DType x, StorageType weight) {
  if (x == DType::f32) return weight == StorageType::f32 ? &grouped_skinny_f32_f32 : nullptr;
  if (x == DType::f16) return weight == StorageType::f16 ? &grouped_skinny_f16_f16 : nullptr;
  switch (weight) {
    case StorageType::bf16: return &grouped_skinny_bf16_bf16;
    case StorageType::q8_0: return &grouped_skinny_bf16_q8_0;
    case StorageType::q4_0: return &grouped_skinny_bf16_q4_0;
    case StorageType::q4_k: return &grouped_skinny_bf16_q4_k;
    case StorageType::q6_k: return &grouped_skinny_bf16_q6_k;
    default: return nullptr;
  }
}

bool decline(const ops::Context& context, const Tensor&, const Tensor& x, std::span<const Weight> weights,
             const Tensor&, ops::GroupedLinearAttributes attributes, ops::Refusal refuse) {
  for (const Weight& weight : weights) {
    if (skinny_declines(context, x, weight, attributes.max_rows, attributes.row_invariant, refuse)) return true;
    if (kernel_of(x.dtype, weight.storage) == nullptr) return refuse("has no kernel for these types");
  }
  return false;
}

void run(ops::Context& context, const Tensor& y, const Tensor& x, std::span<const Weight> weights,
         const Tensor& offsets, ops::GroupedLinearAttributes attributes) {
  for_expert_runs(weights, [&](size_t first, size_t count, int64_t expert_bytes) {
    const Weight& weight = weights[first];
    const GroupedSkinnyArgs args{.gemm = skinny_args(context, y, x, weight, attributes.accumulate ? y.data : nullptr),
                                 .offsets = offsets.as<int32_t>() + first,
                                 .expert_bytes = expert_bytes};
    launch(context, *kernel_of(x.dtype, weight.storage),
           {skinny_blocks(context, args.gemm), static_cast<int64_t>(count)}, args);
  });
}

}  // namespace

void register_grouped_skinny_gemm(ops::Registry& registry, DeviceKind kind) {
  registry.add<ops::GroupedLinear>(kind, "few", run, decline);
}

}  // namespace ingot::gpu
#endif
