// Matrix products of bf16 on the matrix cores, by tiles that come to shared memory while those before are multiplied.
// Sums run over k in order and are never split, so a row's or a column's bits depend on nothing but k, whatever the
// shape of the tiles: that is free to follow the shape of the product (arch/tuning.h).
//
// A stage is 32 columns of k: two or four matrix instructions for each pair of operands between two barriers. In shared
// memory 16 bytes, 8 neighbours, stay together, and their place is turned within the row (of k's elements, or of as
// many k) so that what lanes read together lies in other banks, without room between the rows.
#include "backend/gpu/block_quant.h"
#include "backend/gpu/matmul_any.h"

namespace ingot::gpu {

// c [m, n] (+)= op(a) op(b). The leading dimensions are elements between rows as stored.
struct TileArgs {
  void* c;
  const void* a;
  const void* b;
  int64_t m, n, k;
  int64_t lda, ldb, ldc;
  int blocks_m, blocks_n;
  Stored stored_b;  // of the kernels that decode b
  bool packed_c;    // rows of c may be stored four elements at a time
  bool c_f32;       // else bf16
  bool accumulate;
};

}  // namespace ingot::gpu

// NT: a is stored [m, k] and b [n, k]; NN: b is stored [k, n]; TN: and a [k, m].
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

namespace ingot::gpu {

constexpr int tile_depth = 32;  // columns of k in a stage

// Bytes of a stage: rows of a and columns of b.
constexpr size_t stage_bytes(int rows, int columns) { return static_cast<size_t>(rows + columns) * tile_depth * 2; }

}  // namespace ingot::gpu

#if GPU_KERNEL_PASS
namespace ingot::gpu::GPU_TARGET {
namespace {

constexpr int threads = 256;
constexpr int depth = tile_depth;
constexpr int stages = async_groups + 1;
// Columns of the large tiles: where copies wait in registers there is room for no more than 128.
constexpr int large_columns = async_groups > 1 ? 256 : 128;

// Where an element is in a stage of an operand. Rows are 64 bytes, half of the banks: with the turn by row / 2
// eight rows fill them all.
GPU_FN int place_along(int row, int k) { return row * depth + ((k / 8) ^ (row / 2 % 4)) * 8 + k % 8; }
// The other way round, [k][rows].
template <int rows>
GPU_FN int place_across(int k, int row) {
  return k * rows + ((row / 8) ^ (k % 8)) * 8 + row % 8;
}

// Pieces of 8 neighbours that a thread brings to a stage of `rows` rows.
template <int rows>
constexpr int pieces = rows * depth / 8 / threads;

// An operand as memory has it: [rows, k], or [k, rows].
struct Operand {
  const Bf16* data;
  int64_t ld;
  int64_t first, rows;  // of the block's tile; of the operand
  int64_t k;
};

// Pieces copied as they are.
template <int rows, bool across>
struct Copied {
  static constexpr bool turned = across;  // in shared memory
  static constexpr int count = pieces<rows>;
  static constexpr int line = across ? rows / 8 : depth / 8;  // pieces in a line of memory
  static constexpr int lines = threads / line;                // that a round of the block's threads brings

  const Bf16* from;
  int64_t round, step;  // elements to the next round, and to the next stage
  int64_t rows_left;    // from this thread's first piece
  int64_t k_left;
  int place;

  GPU_FN explicit Copied(const Operand& operand) {
    const int at = thread_index() / line;
    const int piece = thread_index() % line * 8;
    const int row = across ? piece : at;
    const int k = across ? at : piece;
    from = operand.data + (across ? k * operand.ld + operand.first + row : (operand.first + row) * operand.ld + k);
    round = lines * operand.ld;
    step = across ? depth * operand.ld : depth;
    rows_left = operand.rows - operand.first - row;
    k_left = operand.k - k;
    place = across ? place_across<rows>(k, row) : place_along(row, k);
  }
  // The next stage, by copies from..., from + count - 1.
  template <class Copies>
  GPU_FN void begin(Copies& copies, int first_copy, Bf16* stage) {
    GPU_UNROLL
    for (int p = 0; p < count; ++p) {
      const bool there = across ? rows_left > 0 && k_left > p * lines : rows_left > p * lines && k_left > 0;
      copies.begin(first_copy + p, stage + place + p * lines * (across ? rows : depth), there ? from + p * round : from,
                   there);
    }
    from += step;
    k_left -= depth;
  }
  GPU_FN void finish(Bf16*) {}
};

// [k, rows] turned on the way, through registers: a thread has 8 rows of two k, and writes both of a row at once.
template <int rows>
struct Turned {
  static constexpr bool turned = false;
  static constexpr int count = 0;
  static constexpr int pairs = rows / 8 * (depth / 2);
  static constexpr int rounds = (pairs + threads - 1) / threads;

  const Bf16* from;
  int64_t ld, rows_left, k_left;
  Pack<Bf16, 8> held[rounds][2];

  GPU_FN explicit Turned(const Operand& operand) : ld(operand.ld) {
    const int k = thread_index() % 16 * 2;
    const int row = thread_index() / 16 * 8;
    from = operand.data + k * ld + operand.first + row;
    rows_left = operand.rows - operand.first - row;
    k_left = operand.k - k;
  }
  template <class Copies>
  GPU_FN void begin(Copies&, int, Bf16*) {
    GPU_UNROLL
    for (int r = 0; r < rounds; ++r) {
      GPU_UNROLL
      for (int i = 0; i < 2; ++i) {
        held[r][i] = {};
        const bool there = k_left > i && rows_left > r * 128 && (pairs >= threads || thread_index() < pairs);
        if (there) held[r][i] = load_pack<Bf16, 8>(from + i * ld + r * 128);
      }
    }
    from += depth * ld;
    k_left -= depth;
  }
  GPU_FN void finish(Bf16* stage) {
    const int k = thread_index() % 16 * 2;
    if (pairs < threads && thread_index() >= pairs) return;
    GPU_UNROLL
    for (int r = 0; r < rounds; ++r) {
      GPU_UNROLL
      for (int i = 0; i < 8; ++i) {
        const int row = thread_index() / 16 * 8 + r * 128 + i;
        store_pack<Bf16, 2>(stage + place_along(row, k), {held[r][0].at[i], held[r][1].at[i]});
      }
    }
  }
};

// Rows of a weight of any storage, decoded on the way.
template <int rows>
struct Decoded {
  static constexpr bool turned = false;
  static constexpr int count = 0;

  const TileArgs& a;
  int64_t first;
  int64_t k0 = 0;

  GPU_FN explicit Decoded(const TileArgs& args, int64_t first_row) : a(args), first(first_row) {}
  template <class Copies>
  GPU_FN void begin(Copies&, int, Bf16*) {}
  GPU_FN void finish(Bf16* stage) {
    for (int p = 0; p < pieces<rows>; ++p) {
      const int row = (thread_index() + p * threads) / (depth / 8);
      const int k = thread_index() % (depth / 8) * 8;
      Floats<8> values = {};
      if (first + row < a.n && k0 + k < a.k) values = decode<8, 2>(a.stored_b, a.b, (first + row) * a.ldb + k0 + k);
      store_floats(stage + place_along(row, k), values);
    }
    k0 += depth;
  }
};

// Blocks that run at the same time share rows and columns: they go down eight blocks of rows before the next column.
struct BlockPlace {
  int64_t row, column;  // in blocks
};
GPU_FN BlockPlace block_place(const TileArgs& a) {
  constexpr int together = 8;
  const int strip = together * a.blocks_n;
  const int first = block_index() / strip * together;
  const int rows = a.blocks_m - first < together ? a.blocks_m - first : together;
  return {first + block_index() % strip % rows, block_index() % strip / rows};
}

// c's `count` neighbours in a row.
template <int count>
GPU_FN void put(const TileArgs& a, int64_t row, int64_t column, Floats<count> sums) {
  if (row >= a.m || column >= a.n) return;
  const int64_t at = row * a.ldc + column;
  const auto whole = [&](auto* c) {
    if (a.accumulate) {
      const auto before = load_floats<count>(c);
      GPU_UNROLL
      for (int i = 0; i < count; ++i) sums.at[i] = before.at[i] + sums.at[i];
    }
    store_floats(c, sums);
  };
  if (a.c_f32) {
    whole(static_cast<float*>(a.c) + at);
  } else {
    whole(static_cast<Bf16*>(a.c) + at);
  }
}

// 16 rows, or columns, of a stage from `first` and k on.
template <int rows, bool turned>
GPU_FN MmaDeepA load_rows(const Bf16* stage, int first, int k) {
  static_assert(!turned || mma_deep == mma_k);
  if constexpr (turned) {
    return {{mma_load_a_transposed([=](int i, int row) { return stage + place_across<rows>(k + i, first + row); })}};
  } else {
    return mma_load_deep_a([=](int row, int i) { return stage + place_along(first + row, k + i); });
  }
}
template <int columns, bool turned>
GPU_FN MmaDeepB load_columns(const Bf16* stage, int first, int k) {
  static_assert(!turned || mma_deep == mma_k);
  if constexpr (turned) {
    return {{mma_load_b_transposed(
        [=](int i, int column) { return stage + place_across<columns>(k + i, first + column); })}};
  } else {
    return mma_load_deep_b([=](int column, int i) { return stage + place_along(first + column, k + i); });
  }
}

template <int rows, int columns, class A, class B>
GPU_FN void multiply(const TileArgs& a, A from_a, B from_b, int64_t first_row, int64_t first_column) {
  // Warps stand 2 x 4 (32 lanes) or 2 x 2 (64 lanes) over the tile.
  constexpr int warp_columns = threads / warp_width / 2;
  constexpr int tiles_m = rows / 2 / 16;
  constexpr int tiles_n = columns / warp_columns / 16;
  constexpr int copied = A::count + B::count;
  auto* const shared = dynamic_shared<Bf16>();
  const auto a_of = [&](int64_t step) { return shared + step % stages * ((rows + columns) * depth); };
  const auto b_of = [&](int64_t step) { return a_of(step) + rows * depth; };
  const int warp_row = warp_index() / warp_columns * (rows / 2);
  const int warp_column = warp_index() % warp_columns * (columns / warp_columns);

  AsyncCopies<(copied > 0 ? copied : 1)> copies[stages - 1];
  const auto begin = [&](int64_t step) {
    auto& group = copies[step % (stages - 1)];
    from_a.begin(group, 0, a_of(step));
    from_b.begin(group, A::count, b_of(step));
    if constexpr (copied > 0) group.commit();
  };
  const auto finish = [&](int64_t step) {
    from_a.finish(a_of(step));
    from_b.finish(b_of(step));
  };

  MmaSums sums[tiles_m][tiles_n] = {};
  const int64_t steps = (a.k + depth - 1) / depth;
  GPU_UNROLL
  for (int step = 0; step < stages - 1; ++step) {
    begin(step);
    finish(step);
  }
  for (int64_t step = 0; step < steps; ++step) {
    if constexpr (copied > 0) copies[step % (stages - 1)].template end<stages - 2>();
    block_barrier();  // this stage has come, and the one before has been multiplied: its room is free
    begin(step + stages - 1);
    const Bf16* const a_stage = a_of(step);
    const Bf16* const b_stage = b_of(step);
    GPU_UNROLL
    for (int k = 0; k < depth; k += mma_deep) {
      MmaDeepB b[tiles_n];
      GPU_UNROLL
      for (int j = 0; j < tiles_n; ++j) b[j] = load_columns<columns, B::turned>(b_stage, warp_column + j * 16, k);
      GPU_UNROLL
      for (int i = 0; i < tiles_m; ++i) {
        const MmaDeepA part = load_rows<rows, A::turned>(a_stage, warp_row + i * 16, k);
        GPU_UNROLL
        for (int j = 0; j < tiles_n; ++j) {
          GPU_UNROLL
          for (int t = 0; t < mma_deep / mma_k; ++t) mma(sums[i][j], part.at[t], b[j].at[t]);
        }
      }
    }
    finish(step + stages - 1);
  }

  constexpr int together = mma_neighbours;
  GPU_UNROLL
  for (int i = 0; i < tiles_m; ++i) {
    GPU_UNROLL
    for (int j = 0; j < tiles_n; ++j) {
      GPU_UNROLL
      for (int e = 0; e < MmaSums::count; e += together) {
        const int64_t row = first_row + warp_row + i * 16 + mma_row(e);
        const int64_t column = first_column + warp_column + j * 16 + mma_column(e);
        if (a.packed_c) {
          Floats<together> values;
          GPU_UNROLL
          for (int x = 0; x < together; ++x) values.at[x] = sums[i][j].at[e + x];
          put<together>(a, row, column, values);
        } else {
          GPU_UNROLL
          for (int x = 0; x < together; ++x) put<1>(a, row, column + x, {sums[i][j].at[e + x]});
        }
      }
    }
  }
}

template <bool wanted, class Yes, class No>
struct Choose {
  using Type = Yes;
};
template <class Yes, class No>
struct Choose<false, Yes, No> {
  using Type = No;
};
// How an operand comes to shared memory: turned on the way where the device has no loads that turn it.
template <int rows, bool across>
using Way = typename Choose<across && !mma_transposes, Turned<rows>, Copied<rows, across>>::Type;

template <int rows, int columns, bool a_across, bool b_across>
GPU_FN void multiply_copied(const TileArgs& a) {
  const BlockPlace place = block_place(a);
  const int64_t row = place.row * rows;
  const int64_t column = place.column * columns;
  multiply<rows, columns>(a, Way<rows, a_across>(Operand{static_cast<const Bf16*>(a.a), a.lda, row, a.m, a.k}),
                          Way<columns, b_across>(Operand{static_cast<const Bf16*>(a.b), a.ldb, column, a.n, a.k}), row,
                          column);
}
template <int rows, int columns>
GPU_FN void multiply_stored(const TileArgs& a) {
  const BlockPlace place = block_place(a);
  const int64_t row = place.row * rows;
  const int64_t column = place.column * columns;
  multiply<rows, columns>(a, Copied<rows, false>(Operand{static_cast<const Bf16*>(a.a), a.lda, row, a.m, a.k}),
                          Decoded<columns>(a, column), row, column);
}

}  // namespace

GPU_KERNEL_BODY(gemm_nt_64, TileArgs) { multiply_copied<64, 64, false, false>(a); }
GPU_KERNEL_BODY(gemm_nt_128, TileArgs) { multiply_copied<128, 128, false, false>(a); }
GPU_KERNEL_BODY(gemm_nt_large, TileArgs) { multiply_copied<128, large_columns, false, false>(a); }
GPU_KERNEL_BODY(gemm_nn_64, TileArgs) { multiply_copied<64, 64, false, true>(a); }
GPU_KERNEL_BODY(gemm_nn_128, TileArgs) { multiply_copied<128, 128, false, true>(a); }
GPU_KERNEL_BODY(gemm_nn_large, TileArgs) { multiply_copied<128, large_columns, false, true>(a); }
GPU_KERNEL_BODY(gemm_tn_64, TileArgs) { multiply_copied<64, 64, true, true>(a); }
GPU_KERNEL_BODY(gemm_tn_128, TileArgs) { multiply_copied<128, 128, true, true>(a); }
GPU_KERNEL_BODY(gemm_tn_large, TileArgs) { multiply_copied<128, large_columns, true, true>(a); }
GPU_KERNEL_BODY(gemm_nt_stored_64, TileArgs) { multiply_stored<64, 64>(a); }
GPU_KERNEL_BODY(gemm_nt_stored_128, TileArgs) { multiply_stored<128, 128>(a); }

}  // namespace ingot::gpu::GPU_TARGET

#else

#include "backend/gpu/arch/tuning.h"
#include "backend/gpu/launch.h"
#include "backend/gpu/ops.h"
#include "backend/gpu/products.h"

namespace ingot::gpu {
namespace {

bool aligned(const void* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; }

// Rows [.., inner] of bf16 can be moved 16 bytes at a time.
bool in_packs(const void* data, int64_t ld, int64_t inner) { return aligned(data) && ld % 8 == 0 && inner % 8 == 0; }

// Kernels of one form, by tile.
struct Form {
  const Kernel<TileArgs>*tile_64, *tile_128, *large;
};
constexpr Form nt{&gemm_nt_64, &gemm_nt_128, &gemm_nt_large};
constexpr Form nn{&gemm_nn_64, &gemm_nn_128, &gemm_nn_large};
constexpr Form tn{&gemm_tn_64, &gemm_tn_128, &gemm_tn_large};
constexpr Form nt_stored{&gemm_nt_stored_64, &gemm_nt_stored_128, nullptr};

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

TileArgs tile_args(const MatrixProduct& p) {
  return {.c = p.c,
          .a = p.a,
          .b = p.b,
          .m = p.m,
          .n = p.n,
          .k = p.k,
          .lda = p.lda,
          .ldb = p.ldb,
          .ldc = p.ldc,
          .packed_c = aligned(p.c) && p.n % 4 == 0 && p.ldc % 4 == 0,
          .c_f32 = p.out == DType::f32,
          .accumulate = p.accumulate};
}

void multiply(ops::Context& context, const MatrixProduct& p) {
  const bool tn_form = p.transpose_a && !p.transpose_b;
  const bool whole = p.in == DType::bf16 && p.k > 0 && in_packs(p.a, p.lda, p.transpose_a ? p.m : p.k) &&
                     in_packs(p.b, p.ldb, p.transpose_b ? p.k : p.n);
  if (!whole || (p.transpose_a && p.transpose_b)) return multiply_any(context, p);
  launch_tiles(context, tn_form ? tn : p.transpose_b ? nt : nn, tile_args(p));
}

// With a weight that must be decoded: few tokens have its tiles decoded by every block of them; for more it is decoded
// once, a slice at a time. Bits are the same.
void run_linear_tiles(ops::Context& context, const Tensor& y, const Tensor& x, const Weight& weight,
                      ops::LinearAttributes attributes) {
  const MatrixProduct whole = linear_product(y, x, weight, {0, weight.out, weight.data}, attributes.accumulate);
  const bool by_tiles = !in_place(weight, x.dtype) && !is_fp8(weight.storage) && x.dtype == DType::bf16 &&
                        aligned(weight.data) && in_packs(x.data, weight.in, weight.in) && weight.in > 0 &&
                        x.shape[0] <= tuning_of(device_of(context)).decoding_tile_tokens;
  if (!by_tiles) return run_linear<multiply>(context, y, x, weight, attributes);
  TileArgs args = tile_args(whole);
  args.stored_b = stored_as(weight);
  launch_tiles(context, nt_stored, args);
}

}  // namespace

void register_matmul(ops::Registry& registry, DeviceKind kind) {
  registry.add<ops::Matmul>(kind, "tiles", run_matmul<multiply>);
  registry.add<ops::Linear>(kind, "tiles", run_linear_tiles);
  registry.add<ops::LinearBackwardInput>(kind, "tiles", run_linear_backward_input<multiply>);
}

}  // namespace ingot::gpu
#endif
