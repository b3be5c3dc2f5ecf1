#include "backend/gpu/gemm/matmul_f32.h"

GPU_KERNEL(gemm_f32, Gemm, 256)

#if GPU_KERNEL_PASS
namespace ingot::gpu::GPU_TARGET {

GPU_KERNEL_BODY(gemm_f32, Gemm) {
  const auto* b = static_cast<const float*>(a.b);
  multiply_f32_tile(a, block_index(), block_index_y(), [&](int64_t line, int64_t at) { return b[line * a.ldb + at]; });
}

}  // namespace ingot::gpu::GPU_TARGET

#else

#include "backend/gpu/launch.h"

namespace ingot::gpu {

void multiply_f32(ops::Context& context, const Gemm& p) {
  launch(context, gemm_f32, {blocks_of(p.m, 64), blocks_of(p.n, 64)}, p);
}

}  // namespace ingot::gpu
#endif
