// Gemms on tensor cores, of bf16 and (only the forms that inference needs) of f16 (tile_gemm.h).
#include "backend/gpu/gemm/matmul_f32.h"
#include "backend/gpu/gemm/tile_gemm.h"

// NT: a is stored [m, k] and b [n, k]. NN: a [m, k] and b [k, n]. TN: a [k, m] and b [k, n]. (In the terms of CUTLASS:
// K-major and K-major, K-major and MN-major, MN-major and MN-major.)
GPU_KERNEL(gemm_nt_64, TileArgs, 256)
GPU_KERNEL(gemm_nt_128, TileArgs, 256)
GPU_KERNEL(gemm_nt_large, TileArgs, 256)
GPU_KERNEL(gemm_nn_64, TileArgs, 256)
GPU_KERNEL(gemm_nn_128, TileArgs, 256)
GPU_KERNEL(gemm_nn_large, TileArgs, 256)
GPU_KERNEL(gemm_tn_64, TileArgs, 256)
GPU_KERNEL(gemm_tn_128, TileArgs, 256)
GPU_KERNEL(gemm_tn_large, TileArgs, 256)
GPU_KERNEL(gemm_nt_stored_64, TileArgs, 256)  // b is a weight of any storage
GPU_KERNEL(gemm_nt_stored_128, TileArgs, 256)
GPU_KERNEL(gemm_any_64, TileArgs, 256)  // any layout and alignment
GPU_KERNEL(gemm_any_128, TileArgs, 256)
GPU_KERNEL(gemm_nt_f16_64, TileArgs, 256)
GPU_KERNEL(gemm_nt_f16_128, TileArgs, 256)
GPU_KERNEL(gemm_nt_f16_large, TileArgs, 256)
GPU_KERNEL(gemm_nt_stored_f16_64, TileArgs, 256)
GPU_KERNEL(gemm_nt_stored_f16_128, TileArgs, 256)
GPU_KERNEL(gemm_any_f16_64, TileArgs, 256)
GPU_KERNEL(gemm_any_f16_128, TileArgs, 256)

#if GPU_KERNEL_PASS
namespace ingot::gpu::GPU_TARGET {
namespace {

template <class T, int rows, int columns, bool a_mn_major, bool b_mn_major>
GPU_FN void multiply_copied(const TileArgs& a) {
  multiply<T, rows, columns, AlignedLoader<T, rows, a_mn_major>, AlignedLoader<T, columns, b_mn_major>>(a,
                                                                                                        block_tile(a));
}
template <class T, int size>
GPU_FN void multiply_stored(const TileArgs& a) {
  multiply<T, size, size, Copied<T, size, false>, Decoded<T, size>>(a, block_tile(a));
}
template <class T, int size>
GPU_FN void multiply_any(const TileArgs& a) {
  multiply<T, size, size, Guarded<T, size>, Guarded<T, size>>(a, block_tile(a));
}

}  // namespace

GPU_KERNEL_BODY(gemm_nt_64, TileArgs) { multiply_copied<Bf16, 64, 64, false, false>(a); }
GPU_KERNEL_BODY(gemm_nt_128, TileArgs) { multiply_copied<Bf16, 128, 128, false, false>(a); }
GPU_KERNEL_BODY(gemm_nt_large, TileArgs) { multiply_copied<Bf16, 128, large_columns, false, false>(a); }
GPU_KERNEL_BODY(gemm_nn_64, TileArgs) { multiply_copied<Bf16, 64, 64, false, true>(a); }
GPU_KERNEL_BODY(gemm_nn_128, TileArgs) { multiply_copied<Bf16, 128, 128, false, true>(a); }
GPU_KERNEL_BODY(gemm_nn_large, TileArgs) { multiply_copied<Bf16, 128, large_columns, false, true>(a); }
GPU_KERNEL_BODY(gemm_tn_64, TileArgs) { multiply_copied<Bf16, 64, 64, true, true>(a); }
GPU_KERNEL_BODY(gemm_tn_128, TileArgs) { multiply_copied<Bf16, 128, 128, true, true>(a); }
GPU_KERNEL_BODY(gemm_tn_large, TileArgs) { multiply_copied<Bf16, 128, large_columns, true, true>(a); }
GPU_KERNEL_BODY(gemm_nt_stored_64, TileArgs) { multiply_stored<Bf16, 64>(a); }
GPU_KERNEL_BODY(gemm_nt_stored_128, TileArgs) { multiply_stored<Bf16, 128>(a); }
GPU_KERNEL_BODY(gemm_any_64, TileArgs) { multiply_any<Bf16, 64>(a); }
GPU_KERNEL_BODY(gemm_any_128, TileArgs) { multiply_any<Bf16, 128>(a); }
GPU_KERNEL_BODY(gemm_nt_f16_64, TileArgs) { multiply_copied<F16, 64, 64, false, false>(a); }
GPU_KERNEL_BODY(gemm_nt_f16_128, TileArgs) { multiply_copied<F16, 128, 128, false, false>(a); }
GPU_KERNEL_BODY(gemm_nt_f16_large, TileArgs) { multiply_copied<F16, 128, large_columns, false, false>(a); }
GPU_KERNEL_BODY(gemm_nt_stored_f16_64, TileArgs) { multiply_stored<F16, 64>(a); }
GPU_KERNEL_BODY(gemm_nt_stored_f16_128, TileArgs) { multiply_stored<F16, 128>(a); }
GPU_KERNEL_BODY(gemm_any_f16_64, TileArgs) { multiply_any<F16, 64>(a); }
GPU_KERNEL_BODY(gemm_any_f16_128, TileArgs) { multiply_any<F16, 128>(a); }

}  // namespace ingot::gpu::GPU_TARGET

#else

#include "backend/gpu/arch/tuning.h"
#include "backend/gpu/gemm/gemm_ops.h"
#include "backend/gpu/launch.h"
#include "backend/gpu/ops.h"
#include "ops/linear_bias.h"
#include "ops/linear_low_rank.h"

namespace ingot::gpu {
namespace {

// True if rows [.., inner] of 16-bit elements can be moved 16 bytes at a time.
bool is_vectorizable(const void* data, int64_t ld, int64_t inner) {
  return aligned(data) && ld % 8 == 0 && inner % 8 == 0;
}

// The kernels of one form, by tile.
struct Form {
  const Kernel<TileArgs>*tile_64, *tile_128, *large;
};
constexpr Form nt{&gemm_nt_64, &gemm_nt_128, &gemm_nt_large};
constexpr Form nn{&gemm_nn_64, &gemm_nn_128, &gemm_nn_large};
constexpr Form tn{&gemm_tn_64, &gemm_tn_128, &gemm_tn_large};
constexpr Form nt_stored{&gemm_nt_stored_64, &gemm_nt_stored_128, nullptr};
constexpr Form any{&gemm_any_64, &gemm_any_128, nullptr};
// f16, only what inference multiplies.
constexpr Form nt_f16{&gemm_nt_f16_64, &gemm_nt_f16_128, &gemm_nt_f16_large};
constexpr Form nt_stored_f16{&gemm_nt_stored_f16_64, &gemm_nt_stored_f16_128, nullptr};
constexpr Form any_f16{&gemm_any_f16_64, &gemm_any_f16_128, nullptr};

void launch_tiles(ops::Context& context, const Form& form, TileArgs args) {
  const Tuning& tuning = tuning_of(device_of(context));
  const auto blocks = [&](int64_t rows, int64_t columns) {
    return blocks_of(args.m, rows) * blocks_of(args.n, columns);
  };
  const auto start = [&](const Kernel<TileArgs>& kernel, int rows, int columns) {
    args.blocks_m = static_cast<int>(blocks_of(args.m, rows));
    args.blocks_n = static_cast<int>(blocks_of(args.n, columns));
    launch(context, kernel, {blocks(rows, columns)}, args,
           stage_bytes(rows, columns) * static_cast<size_t>(tuning.gemm_stages));
  };
  if (form.large != nullptr && blocks(128, tuning.large_columns) >= tuning.large_tile_blocks) {
    return start(*form.large, 128, tuning.large_columns);
  }
  if (args.m > 64 && blocks(128, 128) >= tuning.tile_blocks) return start(*form.tile_128, 128, 128);
  start(*form.tile_64, 64, 64);
}

}  // namespace

void multiply_tiles(ops::Context& context, const Gemm& p) {
  if (p.in == DType::f32) return multiply_f32(context, p);
  const bool vectorizable = p.k > 0 && is_vectorizable(p.a, p.lda, p.transpose_a ? p.m : p.k) &&
                            is_vectorizable(p.b, p.ldb, p.transpose_b ? p.k : p.n);
  if (p.in == DType::f16) {
    return launch_tiles(context, vectorizable && p.transpose_b && !p.transpose_a ? nt_f16 : any_f16, tile_args(p));
  }
  const Form& form = !vectorizable || (p.transpose_a && p.transpose_b) ? any
                     : p.transpose_a                                   ? tn
                     : p.transpose_b                                   ? nt
                                                                       : nn;
  launch_tiles(context, form, tile_args(p));
}

namespace {

// Linear with a weight that must be decoded: for few tokens every block decodes its own tiles of it; for more tokens it
// is decoded once, a slice at a time. The bits are the same.
void run_linear_tiles(ops::Context& context, const Tensor& y, const Tensor& x, const Weight& weight,
                      ops::LinearAttributes attributes) {
  const Gemm gemm = linear_gemm(y, x, weight, {0, weight.out, weight.data}, addend_of(y, attributes));
  const bool by_tiles = !in_place(weight, x.dtype) && !is_fp8(weight.storage) && x.dtype != DType::f32 &&
                        aligned(weight.data) && is_vectorizable(x.data, weight.in, weight.in) && weight.in > 0 &&
                        x.shape[0] <= tuning_of(device_of(context)).decoding_tile_tokens;
  if (!by_tiles) return run_linear<multiply_tiles>(context, y, x, weight, attributes);
  TileArgs args = tile_args(gemm);
  args.stored_b = stored_as(weight);
  launch_tiles(context, x.dtype == DType::bf16 ? nt_stored : nt_stored_f16, args);
  pad_columns(context, y, weight.out);
}

}  // namespace

void register_matmul(ops::Registry& registry, DeviceKind kind) {
  register_skinny_gemm(registry, kind);  // for few tokens, before the kernels that decode the weight first
  register_vendor_matmul(registry, kind);
  registry.add<ops::Matmul>(kind, "tiles", run_matmul<multiply_tiles>);
  registry.add<ops::Linear>(kind, "tiles", run_linear_tiles);
  registry.add<ops::LinearBackwardInput>(kind, "tiles", run_linear_backward_input<multiply_tiles>);
  register_dequantize_fp8(registry, kind);
  register_dequantize(registry, kind);
  ops::add_low_rank_apart(registry, kind);
  ops::add_linear_bias_apart(registry, kind);
  using Feature = ops::Registry::Feature;
  registry.support<ops::Linear>(kind, Feature::residual);
  registry.support<ops::LinearLowRank>(kind, Feature::residual);
  registry.support<ops::Matmul>(kind, Feature::padded_columns);
  registry.support<ops::Linear>(kind, Feature::padded_columns);
  registry.support<ops::LinearBackwardInput>(kind, Feature::padded_columns);
}

}  // namespace ingot::gpu
#endif
