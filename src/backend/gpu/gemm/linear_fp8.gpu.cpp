// Gemms of fp8 matrices (fp8.h) with tiles of 128 x 128, on tensor cores that support fp8. Rows are padded to a
// multiple of 16 codes, so that 16 or 4 codes can be loaded at a time up to the end of a row. Sums run over k in order,
// as in matmul.gpu.cpp.
#include <type_traits>

#include "backend/gpu/gemm/fp8.h"
#include "backend/gpu/gemm/matmul_tiles.h"
#include "backend/gpu/gemm/mma8.h"

namespace ingot::gpu {

// y [m, n] = a [m, k] b [n, k]^T, or dx [m, n] = a [m, k] b [k, n], plus `addend` if not null (like the result; may be
// the result itself). Both operands are fp8.
struct LinearFp8Args {
  void* result;
  const void* addend;
  const void* a;
  const void* b;
  int64_t m, n, k;
  bool f32;  // type of the result; else bf16
};

}  // namespace ingot::gpu

GPU_KERNEL(linear_fp8, LinearFp8Args, 256)
GPU_KERNEL(linear_fp8_backward_input, LinearFp8Args, 256)
GPU_KERNEL(linear_fp8_backward_input_e5m2, LinearFp8Args, 256)

#if GPU_KERNEL_PASS
namespace ingot::gpu::GPU_TARGET {
namespace fp8_product {  // not anonymous: it is unused on targets without fp8 mma

inline constexpr int tile = 128;   // rows of a and columns of the result per block
inline constexpr int depth = 64;   // columns of k per stage
inline constexpr int stride = 80;  // bytes between rows in shared memory: adjacent rows lie in different banks
inline constexpr int threads = tile_threads;
inline constexpr int steps = depth / mma8_k;

struct Tiles {
  alignas(16) uint8_t a[tile * stride];  // [row][k]
  alignas(16) uint8_t b[tile * stride];  // [column][k]
};

// A thread's part of a 128 x 64 tile of an fp8 matrix [rows, k], starting at row `first` and column `k0`; zeros outside
// of the matrix.
struct Rows {
  static constexpr int packs = tile * depth / 16 / threads;
  using Codes = Pack<uint32_t, 4>;
  Codes at[packs];

  GPU_FN static int row(int p) { return (thread_index() + p * threads) / (depth / 16); }
  GPU_FN static int column(int p) { return (thread_index() + p * threads) % (depth / 16) * 16; }

  GPU_FN void load(const void* from, int64_t first, int64_t rows, int64_t k0, int64_t k) {
    for (int p = 0; p < packs; ++p) {
      const int64_t line = first + row(p);
      const int64_t code = k0 + column(p);
      const auto* address = static_cast<const uint8_t*>(from) + line * fp8_row_bytes(k) + code;
      at[p] = line < rows && code < k ? load_pack<uint32_t, 4>(reinterpret_cast<const uint32_t*>(address)) : Codes{};
    }
  }
  GPU_FN void store(uint8_t* shared) const {
    for (int p = 0; p < packs; ++p) {
      store_pack<uint32_t, 4>(reinterpret_cast<uint32_t*>(shared + row(p) * stride + column(p)), at[p]);
    }
  }
};

// The same for a matrix [k, n]: 64 rows of 128 columns, which `store` transposes in blocks of 4 x 4.
struct Columns {
  static constexpr int squares = tile * depth / 16 / threads;
  uint32_t at[squares][4];  // [k], each word with the codes of 4 adjacent columns

  GPU_FN static int column(int s) { return (thread_index() + s * threads) % (tile / 4) * 4; }
  GPU_FN static int line(int s) { return (thread_index() + s * threads) / (tile / 4) * 4; }

  GPU_FN void load(const void* from, int64_t first, int64_t n, int64_t k0, int64_t k) {
    for (int s = 0; s < squares; ++s) {
      const int64_t code = first + column(s);
      for (int i = 0; i < 4; ++i) {
        const int64_t row = k0 + line(s) + i;
        const auto* address = static_cast<const uint8_t*>(from) + row * fp8_row_bytes(n) + code;
        at[s][i] = row < k && code < n ? *reinterpret_cast<const uint32_t*>(address) : 0U;
      }
    }
  }
  GPU_FN void store(uint8_t* shared) const {
    for (int s = 0; s < squares; ++s) {
      GPU_UNROLL
      for (int c = 0; c < 4; ++c) {
        uint32_t word = 0;
        GPU_UNROLL
        for (int i = 0; i < 4; ++i) word |= (at[s][i] >> (8 * c) & 0xffU) << (8 * i);
        *reinterpret_cast<uint32_t*>(shared + (column(s) + c) * stride + line(s)) = word;
      }
    }
  }
};

// `backward`: k runs over the rows of b, whose scales are already multiplied into a. a is e4m3 or e5m2, b e4m3.
template <bool backward, bool a_is_e5m2>
GPU_FN void multiply(const LinearFp8Args& a) {
  GPU_SHARED(Tiles, shared);
  const int64_t first_row = static_cast<int64_t>(block_index()) * tile;
  const int64_t first_column = static_cast<int64_t>(block_index_y()) * tile;
  WarpSums<tile, tile> sums;
  // Rows and columns of the result that remain from the warp's first element on; mma tiles beyond them are skipped.
  const int64_t left_m = a.m - first_row - sums.row();
  const int64_t left_n = a.n - first_column - sums.column();

  Rows next_a;
  std::conditional_t<backward, Columns, Rows> next_b;
  next_a.load(a.a, first_row, a.m, 0, a.k);
  next_b.load(a.b, first_column, a.n, 0, a.k);
  for (int64_t k0 = 0; k0 < a.k; k0 += depth) {
    block_barrier();  // the previous tiles have been multiplied
    next_a.store(shared.a);
    next_b.store(shared.b);
    block_barrier();
    if (k0 + depth < a.k) {
      next_a.load(a.a, first_row, a.m, k0 + depth, a.k);
      next_b.load(a.b, first_column, a.n, k0 + depth, a.k);
    }
    Mma8B b[sums.tiles_n][steps];
    GPU_UNROLL
    for (int j = 0; j < sums.tiles_n; ++j) {
      GPU_UNROLL
      for (int s = 0; s < steps; ++s) {
        b[j][s] = mma8_load_b(shared.b + (sums.column() + j * 16) * stride + s * mma8_k, stride);
      }
    }
    GPU_UNROLL
    for (int i = 0; i < sums.tiles_m; ++i) {
      if (i * 16 >= left_m) break;
      Mma8A part[steps];
      GPU_UNROLL
      for (int s = 0; s < steps; ++s) {
        part[s] = mma8_load_a(shared.a + (sums.row() + i * 16) * stride + s * mma8_k, stride);
      }
      GPU_UNROLL
      for (int j = 0; j < sums.tiles_n; ++j) {
        if (j * 16 >= left_n) continue;
        GPU_UNROLL
        for (int s = 0; s < steps; ++s) mma8<a_is_e5m2>(sums.at[i][j], part[s], b[j][s]);
      }
    }
  }
  sums.template for_each<1>([&](int row_in_tile, int column_in_tile, Floats<1> sum) {
    const int64_t row = first_row + row_in_tile;
    const int64_t column = first_column + column_in_tile;
    if (row >= a.m || column >= a.n) return;
    sum.at[0] = sum.at[0] * mma8_factor * fp8_row_scale(a.a, a.k, row);
    if constexpr (!backward) sum.at[0] *= fp8_row_scale(a.b, a.k, column);
    store_sum<Bf16>(a.result, a.addend, a.f32, row * a.n + column, sum);
  });
}

}  // namespace fp8_product

// Targets without the instructions have empty kernels of the same names, which are never launched.
GPU_KERNEL_BODY(linear_fp8, LinearFp8Args) {
  if constexpr (has_mma8) fp8_product::multiply<false, false>(a);
}
GPU_KERNEL_BODY(linear_fp8_backward_input, LinearFp8Args) {
  if constexpr (has_mma8) fp8_product::multiply<true, false>(a);
}
GPU_KERNEL_BODY(linear_fp8_backward_input_e5m2, LinearFp8Args) {
  if constexpr (has_mma8) fp8_product::multiply<true, true>(a);
}

}  // namespace ingot::gpu::GPU_TARGET

#else

#include "backend/gpu/gemm/gemm_ops.h"
#include "backend/gpu/launch.h"
#include "backend/gpu/ops.h"
#include "ops/linear_fp8.h"

namespace ingot::gpu {
namespace {

using ops::Context;

void run(Context& context, const Kernel<LinearFp8Args>& kernel, const Tensor& result, const Weight& a, const Weight& b,
         ops::LinearAttributes attributes) {
  const LinearFp8Args args{.result = result.data,
                           .addend = addend_of(result, attributes),
                           .a = a.data,
                           .b = b.data,
                           .m = result.shape[0],
                           .n = result.shape[1],
                           .k = a.in,
                           .f32 = result.dtype == DType::f32};
  launch(context, kernel, {blocks_of(args.m, 128), blocks_of(args.n, 128)}, args);
}

void forward(Context& context, const Tensor& y, const Weight& x, const Weight& weight,
             ops::LinearAttributes attributes) {
  run(context, linear_fp8, y, x, weight, attributes);
}

void backward_input(Context& context, const Tensor& dx, const Weight& dy, const Weight& weight,
                    ops::LinearAttributes attributes) {
  const bool e5m2 = dy.storage == StorageType::fp8_e5m2;
  run(context, e5m2 ? linear_fp8_backward_input_e5m2 : linear_fp8_backward_input, dx, dy, weight, attributes);
}

// Supported on CDNA 3 and 4, on NVIDIA's compute capability 12, for which the driver compiles the PTX, and on simulated
// GPUs, which have the tile layouts of both. Not on sm_90 and sm_100: nvcc 13.0 compiles mma.sync of 8-bit floats to
// conversions and 16-bit mma (the machine code has F2FP and HMMA), so "decoded", which runs the best bf16 gemm, is as
// good there. Not on sm_89, which would run the code that was compiled for sm_80.
bool no_gemm(const Context& context, const Tensor&, const Weight&, const Weight&, ops::LinearAttributes,
             ops::Refusal refuse) {
  const std::string arch = context.device.arch();
  const bool has_fp8_mma =
      arch == "gfx942" || arch == "gfx950" || arch.starts_with("sm_12") || context.device.kind() == DeviceKind::sim;
  return !has_fp8_mma && refuse("{} has no native fp8 mma.sync or MFMA instructions", arch);
}

}  // namespace

void register_linear_fp8(ops::Registry& registry, DeviceKind kind) {
  register_quantize_fp8(registry, kind);
  register_vendor_linear_fp8(registry, kind);
  registry.add<ops::GemmFp8>(kind, "tiles", forward, no_gemm);
  registry.add<ops::GemmFp8>(kind, "decoded", ops::linear_fp8_decoded);
  registry.support<ops::GemmFp8>(kind, ops::Registry::Feature::residual);
  registry.add<ops::GemmFp8BackwardInput>(kind, "tiles", backward_input, no_gemm);
  registry.add<ops::GemmFp8BackwardInput>(kind, "decoded", ops::linear_fp8_backward_input_decoded);
}

}  // namespace ingot::gpu
#endif
