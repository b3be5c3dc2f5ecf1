// Matrix products of any layout and alignment: by tiles of 128 x 128 on the matrix cores (bf16), and of 64 x 64 on the
// ordinary ones (f32). Sums run over k in order and are never split, so a row's or a column's bits depend on nothing
// but k; those of bf16 are what the tiles of matmul.gpu.cpp give.
#include "backend/gpu/matmul_any.h"

#include "backend/gpu/number.h"

namespace ingot::gpu {

// c [m, n] (+)= op(a) op(b). The leading dimensions are elements between rows as stored.
struct GemmArgs {
  void* c;
  const void* a;
  const void* b;
  int64_t m, n, k;
  int64_t lda, ldb, ldc;
  bool transpose_a;  // a is stored [k, m]
  bool transpose_b;  // b is stored [n, k]
  bool packed_a;     // rows may be read 16 bytes at a time
  bool packed_b;
  bool c_f32;  // else bf16
  bool accumulate;
};

}  // namespace ingot::gpu

GPU_KERNEL(gemm_any, GemmArgs, 256)
GPU_KERNEL(gemm_f32, GemmArgs, 256)

#if GPU_KERNEL_PASS
namespace ingot::gpu::GPU_TARGET {
namespace {

GPU_FN void put(const GemmArgs& a, int64_t row, int64_t column, float sum) {
  if (row >= a.m || column >= a.n) return;
  const int64_t at = row * a.ldc + column;
  if (a.c_f32) {
    float* c = static_cast<float*>(a.c) + at;
    *c = a.accumulate ? *c + sum : sum;
  } else {
    Bf16* c = static_cast<Bf16*>(a.c) + at;
    *c = from_float<Bf16>(a.accumulate ? to_float(*c) + sum : sum);
  }
}

// ---- bf16 on matrix cores

constexpr int tile = 128;   // rows of a and columns of b that a block multiplies
constexpr int depth = 32;   // of k at a time
constexpr int stride = 40;  // elements between rows in shared memory: neighbours lie in other banks
constexpr int a_thread = tile * depth / 8 / 256;  // packs of 8 that a thread moves

struct Tiles {
  alignas(16) Bf16 a[tile * stride];  // [row][k]
  alignas(16) Bf16 b[tile * stride];  // [column][k]
};

struct Fetched {
  Pack<Bf16, 8> at[a_thread];
};

// A 128 x 32 piece of an operand, from row `first` and k `k0` on; zeros outside of [rows, k]. Stored [rows, k], or [k,
// rows] if `transposed`: then a pack holds 8 rows of one k.
GPU_FN Fetched fetch(const Bf16* from, int64_t ld, bool transposed, bool packed, int64_t first, int64_t rows,
                     int64_t k0, int64_t k) {
  Fetched fetched;
  for (int p = 0; p < a_thread; ++p) {
    const int index = thread_index() + p * 256;
    const int64_t row = first + (transposed ? index % (tile / 8) * 8 : index / (depth / 8));
    const int64_t column = k0 + (transposed ? index / (tile / 8) : index % (depth / 8) * 8);
    const int64_t at = transposed ? column * ld + row : row * ld + column;
    const int64_t left = transposed ? rows - row : k - column;  // elements there are from `at` on
    const bool inside = transposed ? column < k : row < rows;
    Pack<Bf16, 8>& pack = fetched.at[p];
    if (inside && packed && left >= 8) {
      pack = load_pack<Bf16, 8>(from + at);
    } else {
      for (int i = 0; i < 8; ++i) pack.at[i] = inside && i < left ? from[at + i] : Bf16{0};
    }
  }
  return fetched;
}

GPU_FN void keep(Bf16* shared, const Fetched& fetched, bool transposed) {
  for (int p = 0; p < a_thread; ++p) {
    const int index = thread_index() + p * 256;
    if (transposed) {
      const int row = index % (tile / 8) * 8;
      const int column = index / (tile / 8);
      for (int i = 0; i < 8; ++i) shared[(row + i) * stride + column] = fetched.at[p].at[i];
    } else {
      store_pack<Bf16, 8>(shared + index / (depth / 8) * stride + index % (depth / 8) * 8, fetched.at[p]);
    }
  }
}

// Warps stand 2 x 4 (32 lanes) or 2 x 2 (64 lanes) over the block's tile.
constexpr int warp_columns = 256 / warp_width / 2;
constexpr int tiles_m = tile / 2 / 16;
constexpr int tiles_n = tile / warp_columns / 16;

GPU_FN void multiply_on_matrix_cores(const GemmArgs& a) {
  GPU_SHARED(Tiles, shared);
  const int64_t first_row = static_cast<int64_t>(block_index()) * tile;
  const int64_t first_column = static_cast<int64_t>(block_index_y()) * tile;
  const int warp_row = warp_index() / warp_columns * (tile / 2);
  const int warp_column = warp_index() % warp_columns * (tile / warp_columns);
  // Of the warp's tiles, those that hold something of c.
  const int64_t left_m = a.m - first_row - warp_row;
  const int64_t left_n = a.n - first_column - warp_column;
  MmaSums sums[tiles_m][tiles_n] = {};

  const auto* from_a = static_cast<const Bf16*>(a.a);
  const auto* from_b = static_cast<const Bf16*>(a.b);
  const auto fetch_a = [&](int64_t k0) {
    return fetch(from_a, a.lda, a.transpose_a, a.packed_a, first_row, a.m, k0, a.k);
  };
  const auto fetch_b = [&](int64_t k0) {
    return fetch(from_b, a.ldb, !a.transpose_b, a.packed_b, first_column, a.n, k0, a.k);
  };
  Fetched next_a = fetch_a(0);
  Fetched next_b = fetch_b(0);
  for (int64_t k0 = 0; k0 < a.k; k0 += depth) {
    block_barrier();  // the tiles before have been multiplied
    keep(shared.a, next_a, a.transpose_a);
    keep(shared.b, next_b, !a.transpose_b);
    block_barrier();
    if (k0 + depth < a.k) {
      next_a = fetch_a(k0 + depth);
      next_b = fetch_b(k0 + depth);
    }
    GPU_UNROLL
    for (int inner = 0; inner < depth; inner += mma_deep) {
      MmaDeepB b[tiles_n];
      GPU_UNROLL
      for (int j = 0; j < tiles_n; ++j) {
        const Bf16* from = shared.b + (warp_column + j * 16) * stride + inner;
        b[j] = mma_load_deep_b([=](int column, int k) { return from + column * stride + k; });
      }
      GPU_UNROLL
      for (int i = 0; i < tiles_m; ++i) {
        if (i * 16 >= left_m) break;
        const Bf16* from = shared.a + (warp_row + i * 16) * stride + inner;
        const MmaDeepA part = mma_load_deep_a([=](int row, int k) { return from + row * stride + k; });
        GPU_UNROLL
        for (int j = 0; j < tiles_n; ++j) {
          if (j * 16 >= left_n) continue;
          GPU_UNROLL
          for (int t = 0; t < mma_deep / mma_k; ++t) mma(sums[i][j], part.at[t], b[j].at[t]);
        }
      }
    }
  }
  GPU_UNROLL
  for (int i = 0; i < tiles_m; ++i) {
    GPU_UNROLL
    for (int j = 0; j < tiles_n; ++j) {
      GPU_UNROLL
      for (int e = 0; e < MmaSums::count; ++e) {
        put(a, first_row + warp_row + i * 16 + mma_row(e), first_column + warp_column + j * 16 + mma_column(e),
            sums[i][j].at[e]);
      }
    }
  }
}

// ---- f32 on the ordinary cores: every thread has 4 x 4 elements, 16 apart

constexpr int plain_tile = 64;
constexpr int plain_depth = 16;

struct PlainTiles {
  float a[plain_depth][plain_tile + 1];
  float b[plain_depth][plain_tile + 1];
};

GPU_FN void multiply_plainly(const GemmArgs& a) {
  GPU_SHARED(PlainTiles, shared);
  const int64_t first_row = static_cast<int64_t>(block_index()) * plain_tile;
  const int64_t first_column = static_cast<int64_t>(block_index_y()) * plain_tile;
  const int row = thread_index() / 16;
  const int column = thread_index() % 16;
  const auto* from_a = static_cast<const float*>(a.a);
  const auto* from_b = static_cast<const float*>(a.b);
  float sums[4][4] = {};
  for (int64_t k0 = 0; k0 < a.k; k0 += plain_depth) {
    for (int index = thread_index(); index < plain_tile * plain_depth; index += 256) {
      // Neighbours in memory by neighbouring threads, however it is stored.
      const int i = a.transpose_a ? index % plain_tile : index / plain_depth;
      const int k = a.transpose_a ? index / plain_tile : index % plain_depth;
      const int64_t r = first_row + i;
      const bool inside = r < a.m && k0 + k < a.k;
      shared.a[k][i] = inside ? from_a[a.transpose_a ? (k0 + k) * a.lda + r : r * a.lda + k0 + k] : 0.0F;
    }
    for (int index = thread_index(); index < plain_tile * plain_depth; index += 256) {
      const int j = a.transpose_b ? index / plain_depth : index % plain_tile;
      const int k = a.transpose_b ? index % plain_depth : index / plain_tile;
      const int64_t c = first_column + j;
      const bool inside = c < a.n && k0 + k < a.k;
      shared.b[k][j] = inside ? from_b[a.transpose_b ? c * a.ldb + k0 + k : (k0 + k) * a.ldb + c] : 0.0F;
    }
    block_barrier();
    for (int k = 0; k < plain_depth; ++k) {
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
    for (int j = 0; j < 4; ++j) put(a, first_row + row + 16 * i, first_column + column + 16 * j, sums[i][j]);
  }
}

}  // namespace

GPU_KERNEL_BODY(gemm_any, GemmArgs) { multiply_on_matrix_cores(a); }
GPU_KERNEL_BODY(gemm_f32, GemmArgs) { multiply_plainly(a); }

}  // namespace ingot::gpu::GPU_TARGET

#else

#include "backend/gpu/launch.h"

namespace ingot::gpu {

void multiply_any(ops::Context& context, const MatrixProduct& p) {
  const auto packed = [](const void* data, int64_t ld) {
    return ld % 8 == 0 && reinterpret_cast<uintptr_t>(data) % 16 == 0;
  };
  const GemmArgs args{.c = p.c,
                      .a = p.a,
                      .b = p.b,
                      .m = p.m,
                      .n = p.n,
                      .k = p.k,
                      .lda = p.lda,
                      .ldb = p.ldb,
                      .ldc = p.ldc,
                      .transpose_a = p.transpose_a,
                      .transpose_b = p.transpose_b,
                      .packed_a = packed(p.a, p.lda),
                      .packed_b = packed(p.b, p.ldb),
                      .c_f32 = p.out == DType::f32,
                      .accumulate = p.accumulate};
  const int64_t side = p.in == DType::f32 ? 64 : 128;
  launch(context, p.in == DType::f32 ? gemm_f32 : gemm_any, {blocks_of(p.m, side), blocks_of(p.n, side)}, args);
}

}  // namespace ingot::gpu
#endif
