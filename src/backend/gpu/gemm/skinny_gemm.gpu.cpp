// Linear layers for few tokens, of any types (skinny_gemm.h).
#include "backend/gpu/gemm/skinny_gemm.h"

// For one type of x: a kernel for each storage.
#define SKINNY_GEMM_KERNELS(X)                            \
  GPU_KERNEL(skinny_gemm_##X##_f32, SkinnyGemmArgs, 256)  \
  GPU_KERNEL(skinny_gemm_##X##_bf16, SkinnyGemmArgs, 256) \
  GPU_KERNEL(skinny_gemm_##X##_f16, SkinnyGemmArgs, 256)  \
  GPU_KERNEL(skinny_gemm_##X##_q8_0, SkinnyGemmArgs, 256) \
  GPU_KERNEL(skinny_gemm_##X##_q4_0, SkinnyGemmArgs, 256) \
  GPU_KERNEL(skinny_gemm_##X##_q4_1, SkinnyGemmArgs, 256) \
  GPU_KERNEL(skinny_gemm_##X##_q5_0, SkinnyGemmArgs, 256) \
  GPU_KERNEL(skinny_gemm_##X##_q5_1, SkinnyGemmArgs, 256) \
  GPU_KERNEL(skinny_gemm_##X##_q4_k, SkinnyGemmArgs, 256) \
  GPU_KERNEL(skinny_gemm_##X##_q6_k, SkinnyGemmArgs, 256)
SKINNY_GEMM_KERNELS(f32)
SKINNY_GEMM_KERNELS(bf16)
SKINNY_GEMM_KERNELS(f16)

#if GPU_KERNEL_PASS
namespace ingot::gpu::GPU_TARGET {

#define SKINNY_GEMM_BODIES(X, T)                                                                                   \
  GPU_KERNEL_BODY(skinny_gemm_##X##_f32, SkinnyGemmArgs) { skinny_gemm<T, QuantFormat::f32>(a, block_index()); }   \
  GPU_KERNEL_BODY(skinny_gemm_##X##_bf16, SkinnyGemmArgs) { skinny_gemm<T, QuantFormat::bf16>(a, block_index()); } \
  GPU_KERNEL_BODY(skinny_gemm_##X##_f16, SkinnyGemmArgs) { skinny_gemm<T, QuantFormat::f16>(a, block_index()); }   \
  GPU_KERNEL_BODY(skinny_gemm_##X##_q8_0, SkinnyGemmArgs) { skinny_gemm<T, QuantFormat::q8_0>(a, block_index()); } \
  GPU_KERNEL_BODY(skinny_gemm_##X##_q4_0, SkinnyGemmArgs) { skinny_gemm<T, QuantFormat::q4_0>(a, block_index()); } \
  GPU_KERNEL_BODY(skinny_gemm_##X##_q4_1, SkinnyGemmArgs) { skinny_gemm<T, QuantFormat::q4_1>(a, block_index()); } \
  GPU_KERNEL_BODY(skinny_gemm_##X##_q5_0, SkinnyGemmArgs) { skinny_gemm<T, QuantFormat::q5_0>(a, block_index()); } \
  GPU_KERNEL_BODY(skinny_gemm_##X##_q5_1, SkinnyGemmArgs) { skinny_gemm<T, QuantFormat::q5_1>(a, block_index()); } \
  GPU_KERNEL_BODY(skinny_gemm_##X##_q4_k, SkinnyGemmArgs) { skinny_gemm<T, QuantFormat::q4_k>(a, block_index()); } \
  GPU_KERNEL_BODY(skinny_gemm_##X##_q6_k, SkinnyGemmArgs) { skinny_gemm<T, QuantFormat::q6_k>(a, block_index()); }
SKINNY_GEMM_BODIES(f32, float)
SKINNY_GEMM_BODIES(bf16, Bf16)
SKINNY_GEMM_BODIES(f16, F16)

}  // namespace ingot::gpu::GPU_TARGET

#else

#include "backend/gpu/gemm/gemm_ops.h"
#include "backend/gpu/ops.h"

namespace ingot::gpu {
namespace {

// Indexed by storage.
#define SKINNY_GEMM_TABLE(X)                                                                           \
  {&skinny_gemm_##X##_f32,  &skinny_gemm_##X##_bf16, &skinny_gemm_##X##_f16,  &skinny_gemm_##X##_q8_0, \
   &skinny_gemm_##X##_q4_0, &skinny_gemm_##X##_q4_1, &skinny_gemm_##X##_q5_0, &skinny_gemm_##X##_q5_1, \
   &skinny_gemm_##X##_q4_k, &skinny_gemm_##X##_q6_k}
constexpr const Kernel<SkinnyGemmArgs>* f32_kernels[] = SKINNY_GEMM_TABLE(f32);
constexpr const Kernel<SkinnyGemmArgs>* bf16_kernels[] = SKINNY_GEMM_TABLE(bf16);
constexpr const Kernel<SkinnyGemmArgs>* f16_kernels[] = SKINNY_GEMM_TABLE(f16);

bool decline(const ops::Context& context, const Tensor& y, const Tensor& x, const Weight& weight,
             ops::LinearAttributes attributes, ops::Refusal refuse) {
  if (y.shape[1] != weight.out) return refuse("does not support padded columns");
  return skinny_declines(context, x, weight, x.shape[0], attributes.row_invariant, refuse);
}

void run(ops::Context& context, const Tensor& y, const Tensor& x, const Weight& weight,
         ops::LinearAttributes attributes) {
  const auto storage = static_cast<size_t>(weight.storage);
  const Kernel<SkinnyGemmArgs>* const* kernels = x.dtype == DType::f32    ? f32_kernels
                                                 : x.dtype == DType::bf16 ? bf16_kernels
                                                                          : f16_kernels;
  const SkinnyGemmArgs args = skinny_args(context, y, x, weight, addend_of(y, attributes));
  launch(context, *kernels[storage], {skinny_blocks(context, args)}, args);
}

}  // namespace

void register_skinny_gemm(ops::Registry& registry, DeviceKind kind) {
  registry.add<ops::Linear>(kind, "few", run, decline);
}

}  // namespace ingot::gpu
#endif
