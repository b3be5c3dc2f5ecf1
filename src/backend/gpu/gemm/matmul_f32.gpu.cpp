// f32 gemms of any layout and alignment, without matrix instructions: tiles of 64 x 64, of which a thread has 4 x 4
// elements, 16 apart. Sums run over k in order, without split-k, so that the bits of a row or a column depend on k
// only.
#include "backend/gpu/gemm/matmul_f32.h"

#include "backend/gpu/number.h"

GPU_KERNEL(gemm_f32, Gemm, 256)

#if GPU_KERNEL_PASS
namespace ingot::gpu::GPU_TARGET {
namespace {

constexpr int tile = 64;   // rows of a and columns of b per block
constexpr int depth = 16;  // columns of k per stage

struct Tiles {
  float a[depth][tile + 1];
  float b[depth][tile + 1];
};

GPU_FN void multiply(const Gemm& a) {
  GPU_SHARED(Tiles, shared);
  const int64_t first_row = static_cast<int64_t>(block_index()) * tile;
  const int64_t first_column = static_cast<int64_t>(block_index_y()) * tile;
  const int row = thread_index() / 16;
  const int column = thread_index() % 16;
  const auto* from_a = static_cast<const float*>(a.a);
  const auto* from_b = static_cast<const float*>(a.b);
  float sums[4][4] = {};
  for (int64_t k0 = 0; k0 < a.k; k0 += depth) {
    for (int index = thread_index(); index < tile * depth; index += 256) {
      // Coalesced: adjacent threads read adjacent addresses in either layout.
      const int i = a.transpose_a ? index % tile : index / depth;
      const int k = a.transpose_a ? index / tile : index % depth;
      const int64_t r = first_row + i;
      const bool inside = r < a.m && k0 + k < a.k;
      shared.a[k][i] = inside ? from_a[a.transpose_a ? (k0 + k) * a.lda + r : r * a.lda + k0 + k] : 0.0F;
    }
    for (int index = thread_index(); index < tile * depth; index += 256) {
      const int j = a.transpose_b ? index / depth : index % tile;
      const int k = a.transpose_b ? index % depth : index / tile;
      const int64_t c = first_column + j;
      const bool inside = c < a.n && k0 + k < a.k;
      shared.b[k][j] = inside ? from_b[a.transpose_b ? c * a.ldb + k0 + k : (k0 + k) * a.ldb + c] : 0.0F;
    }
    block_barrier();
    for (int k = 0; k < depth; ++k) {
      GPU_UNROLL
      for (int i = 0; i < 4; ++i) {
        GPU_UNROLL
        for (int j = 0; j < 4; ++j)
          sums[i][j] = fma(shared.a[k][row + 16 * i], shared.b[k][column + 16 * j], sums[i][j]);
      }
    }
    block_barrier();
  }
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j) {
      const int64_t r = first_row + row + 16 * i;
      const int64_t c = first_column + column + 16 * j;
      if (r < a.m && c < a.n) put_floats<Bf16, 1>(a.c, a.out == DType::f32, r * a.ldc + c, {sums[i][j]}, a.accumulate);
    }
  }
}

}  // namespace

GPU_KERNEL_BODY(gemm_f32, Gemm) { multiply(a); }

}  // namespace ingot::gpu::GPU_TARGET

#else

#include "backend/gpu/launch.h"

namespace ingot::gpu {

void multiply_f32(ops::Context& context, const Gemm& p) {
  launch(context, gemm_f32, {blocks_of(p.m, 64), blocks_of(p.n, 64)}, p);
}

}  // namespace ingot::gpu
#endif
