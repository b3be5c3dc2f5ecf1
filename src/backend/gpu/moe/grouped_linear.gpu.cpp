// Gemms over rows that are grouped by expert (ops/grouped_linear.h): the tiles of all experts in one launch. How many
// row blocks an expert has is only in the offsets on the device, so the grid has as many as there may be, and each
// block searches the offsets for its expert. A tile is computed as in matmul.gpu.cpp and matmul_f32.gpu.cpp, so the
// bits of a row are those of a gemm of its expert alone by these kernels. (A vendor's library may use another order.)
#include "backend/gpu/gemm/fp8.h"
#include "backend/gpu/gemm/matmul_f32.h"
#include "backend/gpu/gemm/tile_gemm.h"

namespace ingot::gpu {

// For fp8 weights, which QuantFormat lacks: the values of Storage.
constexpr QuantFormat fp8_e4m3{10}, fp8_e5m2{11};

// Consecutive experts whose weights have one storage and one distance in memory.
struct GroupedArgs {
  TileArgs gemm;           // with the first expert's weight, and the whole matrices a and c; m is not used
  const int32_t* offsets;  // [experts + 1]
  int experts;
  int64_t expert_bytes;  // from one expert's weight to the next
};

// c [m, n] (+)= a^T b over the rows of one expert whose token is in [token_begin, token_end); k is not used.
struct GroupedGradientArgs {
  TileArgs gemm;
  const int32_t* offsets;  // the expert's two
  const int32_t* token_of_row;
  int64_t token_begin, token_end;
};

}  // namespace ingot::gpu

// As in matmul.gpu.cpp. grouped_any: any layout and alignment of a; b is a weight of any storage.
GPU_KERNEL(grouped_nt_64, GroupedArgs, 256)
GPU_KERNEL(grouped_nt_128, GroupedArgs, 256)
GPU_KERNEL(grouped_nn_64, GroupedArgs, 256)
GPU_KERNEL(grouped_nn_128, GroupedArgs, 256)
GPU_KERNEL(grouped_any_64, GroupedArgs, 256)
GPU_KERNEL(grouped_nt_f16_64, GroupedArgs, 256)
GPU_KERNEL(grouped_nt_f16_128, GroupedArgs, 256)
GPU_KERNEL(grouped_any_f16_64, GroupedArgs, 256)
GPU_KERNEL(grouped_f32, GroupedArgs, 256)
GPU_KERNEL(grouped_gradient_64, GroupedGradientArgs, 256)
GPU_KERNEL(grouped_gradient_128, GroupedGradientArgs, 256)
GPU_KERNEL(grouped_gradient_any_64, GroupedGradientArgs, 256)
GPU_KERNEL(grouped_gradient_f32, GroupedGradientArgs, 256)

#if GPU_KERNEL_PASS
namespace ingot::gpu::GPU_TARGET {
namespace {

// A block of an expert's rows. expert is -1 past the last row block.
struct ExpertRows {
  int expert;
  int begin, count;  // the expert's rows
  int block;         // of these
};

// Row block `index` of all experts' row blocks of `tile` rows each. Each warp computes it.
GPU_FN ExpertRows expert_rows(const GroupedArgs& a, int tile, int index) {
  for (int first = 0; first < a.experts; first += warp_width) {
    const int expert = first + lane_index();
    const bool valid = expert < a.experts;
    const int begin = a.offsets[valid ? expert : a.experts];
    const int count = a.offsets[valid ? expert + 1 : a.experts] - begin;
    const int blocks = (count + tile - 1) / tile;
    int prefix_sum = blocks;  // sum over this and the lower lanes
    for (int step = 1; step < warp_width; step *= 2) {
      const int other = shuffle(prefix_sum, lane_index() >= step ? lane_index() - step : lane_index());
      if (lane_index() >= step) prefix_sum += other;
    }
    const uint64_t found = warp_ballot(index < prefix_sum && index >= prefix_sum - blocks);
    if (found != 0) {
      const int lane = assume_warp_uniform(count_bits((found & (~found + 1)) - 1));
      return {first + lane, shuffle(begin, lane), shuffle(count, lane), index - shuffle(prefix_sum - blocks, lane)};
    }
    index -= shuffle(prefix_sum, warp_width - 1);
  }
  return {-1, 0, 0, 0};
}

// The gemm of one expert's rows. a and c have elements of `a_size` and `c_size` bytes.
GPU_FN TileArgs expert_gemm(const GroupedArgs& args, const ExpertRows& rows, int a_size, int c_size) {
  TileArgs gemm = args.gemm;
  gemm.m = rows.count;
  gemm.a = static_cast<const uint8_t*>(gemm.a) + rows.begin * gemm.lda * a_size;
  const int64_t c_bytes = rows.begin * gemm.ldc * c_size;
  gemm.c = static_cast<uint8_t*>(gemm.c) + c_bytes;
  if (gemm.addend != nullptr) gemm.addend = static_cast<const uint8_t*>(gemm.addend) + c_bytes;
  gemm.b = static_cast<const uint8_t*>(gemm.b) + rows.expert * args.expert_bytes;
  return gemm;
}

// V elements from (row, column) on of a weight with rows of `width` elements, of any storage.
template <int V>
GPU_FN Floats<V> decode_weight(QuantFormat stored, const void* data, int64_t row, int64_t column, int64_t width) {
  if (stored != fp8_e4m3 && stored != fp8_e5m2) return decode<V, 2>(stored, data, row * width + column);
  const auto* codes = static_cast<const uint8_t*>(data) + row * fp8_row_bytes(width) + column;
  const float scale = fp8_row_scale(data, width, row);
  const auto pack = load_pack<uint8_t, V>(codes);
  Floats<V> values;
  GPU_UNROLL
  for (int i = 0; i < V; ++i) {
    values.at[i] = (stored == fp8_e5m2 ? fp8_value<E5m2>(pack.at[i]) : fp8_value<E4m3>(pack.at[i])) * scale;
  }
  return values;
}

// A loader (tile_gemm.h) of a weight of any storage, [rows, k] or [k, rows] if `mn_major`, of any alignment.
template <class T, int rows>
struct DecodedAny {
  static constexpr bool transposed = false;
  static constexpr int count = 0;

  Operand operand;
  int64_t k0 = 0;

  GPU_FN explicit DecodedAny(const Operand& b) : operand(b) {}
  template <class Copies>
  GPU_FN void begin(Copies&, int, T*) {}
  GPU_FN void finish(T* stage) {
    const int line = operand.mn_major ? rows / 8 : depth / 8;  // chunks of 8 per stored row
    for (int p = 0; p < ThreadChunks<T, rows>::count; ++p) {
      const int index = thread_index() + p * threads;
      const int at = index % line * 8;
      const int row = operand.mn_major ? at : index / line;
      const int k = operand.mn_major ? index / line : at;
      const int64_t stored_row = operand.mn_major ? k0 + k : operand.first + row;
      const int64_t first = operand.mn_major ? operand.first + row : k0 + k;
      const int64_t stored_rows = operand.mn_major ? operand.k : operand.rows;
      Floats<8> values = {};
      if (stored_row < stored_rows) values = chunk(stored_row, first);
      if (operand.mn_major) {
        for (int i = 0; i < 8; ++i) stage[swizzle_k_major(row + i, k)] = from_float<T>(values.at[i]);
      } else {
        store_floats(stage + swizzle_k_major(row, k), values);
      }
    }
    k0 += depth;
  }

 private:
  // Elements first to first + 7 of a stored row; zeros past its end.
  GPU_FN Floats<8> chunk(int64_t row, int64_t first) const {
    Floats<8> values = {};
    if (operand.packed) {
      if (first < operand.ld) values = decode_weight<8>(operand.stored, operand.data, row, first, operand.ld);
      return values;
    }
    for (int i = 0; i < 8; ++i) {
      if (first + i >= operand.ld) break;
      values.at[i] = decode_weight<1>(operand.stored, operand.data, row, first + i, operand.ld).at[0];
    }
    return values;
  }
};

template <class T, int rows, int columns, class A, class B>
GPU_FN void grouped(const GroupedArgs& args) {
  const TileIndex tile = block_tile(args.gemm);
  const ExpertRows of = expert_rows(args, rows, static_cast<int>(tile.row));
  if (of.expert < 0) return;
  const TileArgs gemm = expert_gemm(args, of, 2, args.gemm.out == DType::f32 ? 4 : 2);
  multiply<T, rows, columns, A, B>(gemm, {of.block, tile.column});
}

template <class T, int size, bool b_mn_major>
GPU_FN void grouped_copied(const GroupedArgs& args) {
  grouped<T, size, size, Copied<T, size, false>, AlignedLoader<T, size, b_mn_major>>(args);
}
template <class T>
GPU_FN void grouped_any(const GroupedArgs& args) {
  grouped<T, 64, 64, Guarded<T, 64>, DecodedAny<T, 64>>(args);
}

// First of the rows [begin, end), whose tokens ascend, with a token of at least `token`; `end` if there is none.
GPU_FN int64_t first_row_of(const int32_t* token_of_row, int64_t begin, int64_t end, int64_t token) {
  while (begin < end) {
    const int64_t middle = (begin + end) / 2;
    if (token_of_row[middle] < token) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return begin;
}

GPU_FN TileArgs gradient_gemm(const GroupedGradientArgs& args, int size) {
  TileArgs gemm = args.gemm;
  const int64_t begin = first_row_of(args.token_of_row, args.offsets[0], args.offsets[1], args.token_begin);
  gemm.k = first_row_of(args.token_of_row, begin, args.offsets[1], args.token_end) - begin;
  gemm.a = static_cast<const uint8_t*>(gemm.a) + begin * gemm.lda * size;
  gemm.b = static_cast<const uint8_t*>(gemm.b) + begin * gemm.ldb * size;
  return gemm;
}

// Without rows there is nothing to add.
GPU_FN bool adds_nothing(const TileArgs& gemm) { return gemm.k == 0 && gemm.addend != nullptr; }

template <int size, class A, class B>
GPU_FN void gradient(const GroupedGradientArgs& args) {
  const TileArgs gemm = gradient_gemm(args, 2);
  if (!adds_nothing(gemm)) multiply<Bf16, size, size, A, B>(gemm, block_tile(gemm));
}
template <int size>
GPU_FN void gradient_copied(const GroupedGradientArgs& args) {
  gradient<size, AlignedLoader<Bf16, size, true>, AlignedLoader<Bf16, size, true>>(args);
}

}  // namespace

GPU_KERNEL_BODY(grouped_nt_64, GroupedArgs) { grouped_copied<Bf16, 64, false>(a); }
GPU_KERNEL_BODY(grouped_nt_128, GroupedArgs) { grouped_copied<Bf16, 128, false>(a); }
GPU_KERNEL_BODY(grouped_nn_64, GroupedArgs) { grouped_copied<Bf16, 64, true>(a); }
GPU_KERNEL_BODY(grouped_nn_128, GroupedArgs) { grouped_copied<Bf16, 128, true>(a); }
GPU_KERNEL_BODY(grouped_any_64, GroupedArgs) { grouped_any<Bf16>(a); }
GPU_KERNEL_BODY(grouped_nt_f16_64, GroupedArgs) { grouped_copied<F16, 64, false>(a); }
GPU_KERNEL_BODY(grouped_nt_f16_128, GroupedArgs) { grouped_copied<F16, 128, false>(a); }
GPU_KERNEL_BODY(grouped_any_f16_64, GroupedArgs) { grouped_any<F16>(a); }
GPU_KERNEL_BODY(grouped_f32, GroupedArgs) {
  const ExpertRows of = expert_rows(a, f32_tile, block_index());
  if (of.expert < 0) return;
  const TileArgs gemm = expert_gemm(a, of, 4, a.gemm.out == DType::f32 ? 4 : 2);
  multiply_f32_tile(gemm, of.block, block_index_y(), [&](int64_t line, int64_t at) {
    return decode_weight<1>(gemm.stored_b, gemm.b, line, at, gemm.ldb).at[0];
  });
}
GPU_KERNEL_BODY(grouped_gradient_64, GroupedGradientArgs) { gradient_copied<64>(a); }
GPU_KERNEL_BODY(grouped_gradient_128, GroupedGradientArgs) { gradient_copied<128>(a); }
GPU_KERNEL_BODY(grouped_gradient_any_64, GroupedGradientArgs) { gradient<64, Guarded<Bf16, 64>, Guarded<Bf16, 64>>(a); }
GPU_KERNEL_BODY(grouped_gradient_f32, GroupedGradientArgs) {
  const TileArgs gemm = gradient_gemm(a, 4);
  if (adds_nothing(gemm)) return;
  const auto* b = static_cast<const float*>(gemm.b);
  multiply_f32_tile(gemm, block_index(), block_index_y(),
                    [&](int64_t line, int64_t at) { return b[line * gemm.ldb + at]; });
}

}  // namespace ingot::gpu::GPU_TARGET

#else

#include <algorithm>

#include "backend/gpu/arch/tuning.h"
#include "backend/gpu/gemm/gemm_ops.h"
#include "backend/gpu/launch.h"
#include "backend/gpu/moe/expert_runs.h"
#include "backend/gpu/ops.h"
#include "ops/grouped_linear.h"

namespace ingot::gpu {
namespace {

static_assert(static_cast<int>(fp8_e4m3) == static_cast<int>(StorageType::fp8_e4m3) &&
              static_cast<int>(fp8_e5m2) == static_cast<int>(StorageType::fp8_e5m2));

struct Tiles {
  const Kernel<GroupedArgs>*tile_64, *tile_128;
};
constexpr Tiles nt{&grouped_nt_64, &grouped_nt_128};
constexpr Tiles nn{&grouped_nn_64, &grouped_nn_128};
constexpr Tiles any{&grouped_any_64, nullptr};
constexpr Tiles nt_f16{&grouped_nt_f16_64, &grouped_nt_f16_128};
constexpr Tiles any_f16{&grouped_any_f16_64, nullptr};

// Row blocks of `rows` rows that `experts` experts with `total` rows together have at most.
int64_t max_row_blocks(int64_t total, int64_t experts, int64_t rows) { return total / rows + std::min(total, experts); }

void launch_tiles(ops::Context& context, const Tiles& tiles, GroupedArgs args, int64_t total) {
  const Tuning& tuning = tuning_of(device_of(context));
  const auto start = [&](const Kernel<GroupedArgs>& kernel, int size) {
    args.gemm.blocks_m = static_cast<int>(max_row_blocks(total, args.experts, size));
    args.gemm.blocks_n = static_cast<int>(blocks_of(args.gemm.n, size));
    launch(context, kernel, {int64_t{args.gemm.blocks_m} * args.gemm.blocks_n}, args,
           stage_bytes(size, size) * static_cast<size_t>(tuning.gemm_stages));
  };
  const bool large = tiles.tile_128 != nullptr && total > 64 * args.experts &&
                     blocks_of(total, 128) * blocks_of(args.gemm.n, 128) >= tuning.tile_blocks;
  large ? start(*tiles.tile_128, 128) : start(*tiles.tile_64, 64);
}

// One launch for each run of experts: `gemm` with their weights.
void multiply(ops::Context& context, const Gemm& gemm, std::span<const Weight> weights, const Tensor& offsets) {
  const int64_t total = gemm.m;
  for_expert_runs(weights, [&](size_t first, size_t count, int64_t expert_bytes) {
    const Weight& weight = weights[first];
    GroupedArgs args{.gemm = tile_args(gemm),
                     .offsets = offsets.as<int32_t>() + first,
                     .experts = static_cast<int>(count),
                     .expert_bytes = expert_bytes};
    TileArgs& tile = args.gemm;
    tile.b = weight.data;
    tile.stored_b = static_cast<QuantFormat>(weight.storage);
    tile.packed_b = aligned(weight.data) && expert_bytes % 16 == 0 && tile.ldb % 8 == 0;
    if (gemm.in == DType::f32) {
      return launch(context, grouped_f32, {max_row_blocks(total, args.experts, 64), blocks_of(gemm.n, 64)}, args);
    }
    const bool vectorizable =
        in_place(weight, gemm.in) && gemm.k > 0 && tile.packed_a && gemm.k % 8 == 0 && tile.packed_b;
    if (gemm.in == DType::f16) return launch_tiles(context, vectorizable ? nt_f16 : any_f16, args, total);
    launch_tiles(context, !vectorizable ? any : gemm.transpose_b ? nt : nn, args, total);
  });
}

void run_linear(ops::Context& context, const Tensor& y, const Tensor& x, std::span<const Weight> weights,
                const Tensor& offsets, ops::GroupedLinearAttributes attributes) {
  const Weight& weight = weights[0];
  multiply(context, linear_gemm(y, x, weight, {0, weight.out, weight.data}, attributes.accumulate ? y.data : nullptr),
           weights, offsets);
}

void run_linear_backward_input(ops::Context& context, const Tensor& dx, const Tensor& dy,
                               std::span<const Weight> weights, const Tensor& offsets,
                               ops::GroupedLinearAttributes attributes) {
  const Weight& weight = weights[0];
  multiply(context, input_gradient_gemm(dx, dy, weight, {0, weight.out, weight.data}, attributes.accumulate), weights,
           offsets);
}

void run_weight_gradient(ops::Context& context, const Tensor& dw, const Tensor& dy, const Tensor& x,
                         const Tensor& offsets, const Tensor& token_of_row,
                         ops::GroupedWeightGradientAttributes attributes) {
  const Gemm gemm = gemm_of(dw, dy, x, {.transpose_a = true, .accumulate = attributes.accumulate});
  GroupedGradientArgs args{.gemm = tile_args(gemm),
                           .offsets = offsets.as<int32_t>() + attributes.expert,
                           .token_of_row = token_of_row.as<int32_t>(),
                           .token_begin = attributes.token_begin,
                           .token_end = attributes.token_end};
  if (gemm.in == DType::f32) {
    return launch(context, grouped_gradient_f32, {blocks_of(gemm.m, 64), blocks_of(gemm.n, 64)}, args);
  }
  const Tuning& tuning = tuning_of(device_of(context));
  const auto start = [&](const Kernel<GroupedGradientArgs>& kernel, int size) {
    args.gemm.blocks_m = static_cast<int>(blocks_of(gemm.m, size));
    args.gemm.blocks_n = static_cast<int>(blocks_of(gemm.n, size));
    launch(context, kernel, {int64_t{args.gemm.blocks_m} * args.gemm.blocks_n}, args,
           stage_bytes(size, size) * static_cast<size_t>(tuning.gemm_stages));
  };
  const TileArgs& tile = args.gemm;
  if (!tile.packed_a || !tile.packed_b || gemm.m % 8 != 0 || gemm.n % 8 != 0) return start(grouped_gradient_any_64, 64);
  const bool large = gemm.m > 64 && blocks_of(gemm.m, 128) * blocks_of(gemm.n, 128) >= tuning.tile_blocks;
  large ? start(grouped_gradient_128, 128) : start(grouped_gradient_64, 64);
}

}  // namespace

void register_grouped_linear(ops::Registry& registry, DeviceKind kind) {
  register_grouped_skinny_gemm(registry, kind);
  registry.add<ops::GroupedLinear>(kind, "tiles", run_linear);
  registry.add<ops::GroupedLinearBackwardInput>(kind, "tiles", run_linear_backward_input);
  registry.add<ops::GroupedWeightGradient>(kind, "tiles", run_weight_gradient);
}

}  // namespace ingot::gpu
#endif
