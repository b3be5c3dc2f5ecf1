// Attention over the paged KV cache on tensor cores, for bf16 and f16. The rows of a tile are the query heads that
// share a key/value head, of one token or of all tokens of a prompt chunk. Keys are processed in units of 128 positions
// of the sequence: softmax and the gemm with the values are computed within a unit, and the units are combined in
// order. Either a block loops over all units of its rows, or (few tokens; split-KV as in flash-decoding) each unit has
// its own block, which writes partial sums to scratch, and the block that is done last combines those of all units of
// its rows. Both do the same arithmetic for a row, so that its bits depend neither on the variant, nor on which block
// is last, nor on how the prompt was cut into chunks, nor on the other sequences.
//
// Keys and values are loaded in chunks of 128 positions and 64 columns (16 KiB), double-buffered, so that shared memory
// does not grow with the head: 33 KiB, and with 32 lanes at most 16 KiB for the queries. Cost: for each position, a
// token reads 4 d bytes of a key/value head and does 64 d FLOPs with them (all 16 rows of a tile, of which a group of G
// uses G). That is 16 FLOPs per byte, so memory bounds it on every target.
#include "backend/gpu/attention/attention_tiles.h"

namespace ingot::gpu {

inline constexpr int unit_keys = 128;

struct PagedTilesArgs {
  PagedAttentionArgs paged;
  // Split-KV only, for each row [token, head, unit]:
  float* parts;       // [tokens, heads, units, d]: the unit's sums of weights times values
  float* stats;       // [tokens, heads, units, 2]: its max score (in the units of Exponents) and the sum of its weights
  int32_t* arrivals;  // [tokens, blocks of a unit]: see arrives_last
  int32_t units;
};

}  // namespace ingot::gpu

// For bf16 and f16, by the max head dimension. Shared memory of Hopper has room for 5 blocks of unit_128; nvcc takes
// 212 registers without a limit, of which 4 blocks fit.
#define PAGED_KERNELS(NAME)                                \
  GPU_KERNEL_WARPS(NAME##_64, PagedTilesArgs, 4)           \
  GPU_KERNEL_WARPS(NAME##_128, PagedTilesArgs, 4)          \
  GPU_KERNEL_WARPS(NAME##_256, PagedTilesArgs, 2)          \
  GPU_KERNEL_WARPS(NAME##_unit_64, PagedTilesArgs, 2)      \
  GPU_KERNEL_BLOCKS(NAME##_unit_128, PagedTilesArgs, 2, 5) \
  GPU_KERNEL_WARPS(NAME##_unit_256, PagedTilesArgs, 2)
PAGED_KERNELS(paged)
PAGED_KERNELS(paged_f16)

#if GPU_KERNEL_PASS
namespace ingot::gpu::GPU_TARGET {
namespace {

constexpr int chunk_columns = 64;

// Query rows of one key/value head: row r is query head r % group of that head, for token first_token + r / group.
struct Queries {
  int64_t first_token;  // its row in q
  int rows;
  int first_position;  // of first_token in its sequence
  int sequence;
};

// Merges two softmax sums: `max` becomes the larger of the maxima `max` and `other`; returns the factors that rescale
// the previous sum and the added one to it. The factor of the maximum that stays is
// exactly 1.
struct RescaleFactors {
  float old, added;
};
GPU_FN RescaleFactors merge_max(float& max, float other, float factor) {
  const float new_max = other > max ? other : max;
  const float base = new_max > -infinity() ? new_max * factor : 0.0F;  // no key so far: all factors are 0
  const RescaleFactors factors{exp2_approx(max * factor - base), exp2_approx(other * factor - base)};
  max = new_max;
  return factors;
}

// Loads keys and values from the cache's pages, unit by unit, for a block whose warps have 16 rows each.
template <class T, int D, int warps, bool one_unit>
struct PageLoader {
  static constexpr int threads = warps * warp_width;
  static constexpr int chunks = D / chunk_columns;  // of a unit's keys, and as many of its values
  static constexpr int n_tiles = unit_keys / 16;
  static constexpr bool in_registers = warp_width == 64 || D == 64;
  using Chunk = Tile<T, chunk_columns>;

  const PagedTilesArgs& args;
  const Queries& queries;
  T* shared;
  int* slots;  // [2][128]: rows of the cache; -1: no key
  int kv_head;
  int last_position;  // position of the block's last row
  TileCopy<T, unit_keys, chunk_columns, threads> copy;

  GPU_FN Chunk chunk(int stage) const { return {shared + stage * unit_keys * chunk_columns}; }
  GPU_FN void find_slots(int unit) {
    const PagedAttentionArgs& a = args.paged;
    const int32_t* const table = a.tables + queries.sequence * a.max_pages;
    const int page = static_cast<int>(a.page);
    for (int i = thread_index(); i < unit_keys; i += threads) {
      const int position = unit * unit_keys + i;
      slots[unit % 2 * unit_keys + i] =
          position <= last_position ? table[position / page] * page + position % page : -1;
    }
  }
  // Starts to load chunk c of the unit: first come the chunks of the keys, then those of the values.
  GPU_FN void begin(int unit, int c) {
    const PagedAttentionArgs& a = args.paged;
    const int column = c % chunks * chunk_columns;
    const auto* const base = static_cast<const T*>(c < chunks ? a.k : a.v) + kv_head * a.d + column;
    const int64_t stride = static_cast<int64_t>(a.kv_heads) * a.d;
    copy.begin_at(chunk(c % 2), base, a.d - column,
                  [&](int row) { return slots[unit % 2 * unit_keys + row] * stride; });
  }
  // Waits for chunk c and starts to load the one after it.
  GPU_FN void next(int unit, int c, bool is_last) {
    copy.copies.wait();
    block_barrier();
    if (c == 0 && !is_last) find_slots(unit + 1);
    if (c + 1 < 2 * chunks) {
      begin(unit, c + 1);
    } else if (!is_last) {
      begin(unit + 1, 0);
    }
  }
};

// Combines the partial sums of a token's units first_unit to last_unit, in order, for `heads` query heads from
// first_head on. A thread has four columns of a row at a time; some units are loaded ahead, because the combination is
// sequential.
template <class T, int threads>
GPU_FN void combine_units(const PagedTilesArgs& args, int64_t token, int first_head, int heads, int first_unit,
                          int last_unit) {
  constexpr int ahead = 8;
  constexpr int columns = 4;
  const PagedAttentionArgs& a = args.paged;
  const int row_packs = a.d / columns;
  const float factor = Exponents(a.score).factor;
  for (int i = thread_index(); i < heads * row_packs; i += threads) {
    const int64_t row = token * a.heads + first_head + i / row_packs;
    const int column = i % row_packs * columns;
    float max = -infinity();
    float total = 0;
    float sums[columns] = {};
    for (int unit = first_unit; unit <= last_unit; unit += ahead) {
      Pack<float, 2> stats[ahead];
      Pack<float, columns> parts[ahead];
      GPU_UNROLL
      for (int j = 0; j < ahead; ++j) {
        const int64_t at = row * args.units + (unit + j <= last_unit ? unit + j : last_unit);
        stats[j] = load_pack<float, 2>(args.stats + at * 2);
        parts[j] = load_pack<float, columns>(args.parts + at * a.d + column);
      }
      GPU_UNROLL
      for (int j = 0; j < ahead; ++j) {
        if (unit + j > last_unit) break;
        const RescaleFactors factors = merge_max(max, stats[j].at[0], factor);
        total = fma(total, factors.old, stats[j].at[1] * factors.added);
        GPU_UNROLL
        for (int c = 0; c < columns; ++c) sums[c] = fma(sums[c], factors.old, parts[j].at[c] * factors.added);
      }
    }
    const float inverse = 1.0F / total;
    Pack<T, columns> pack;
    GPU_UNROLL
    for (int c = 0; c < columns; ++c) pack.at[c] = from_float<T>(sums[c] * inverse);
    store_pack(static_cast<T*>(a.out) + row * a.d + column, pack);
  }
}

// Assigns out, of one unit or of all units of the rows; with one_unit where the token has no other unit, or the block
// is the last of those of its units.
template <class T, int D, int warps, bool one_unit>
GPU_FN void over_pages(const PagedTilesArgs& args, const Queries& queries, int first_row, int only_unit) {
  using Loader = PageLoader<T, D, warps, one_unit>;
  const PagedAttentionArgs& a = args.paged;
  const int group = a.heads / a.kv_heads;
  const int rows = 16 * warps;
  const int kv_head = block_index_y() % a.kv_heads;
  const int last_row = (first_row + rows < queries.rows ? first_row + rows : queries.rows) - 1;
  const int last_position = queries.first_position + last_row / group;
  const int first_unit = static_cast<int>(first_key(a.score, queries.first_position + first_row / group)) / unit_keys;
  const int last_unit = last_position / unit_keys;
  if (one_unit && (only_unit < first_unit || only_unit > last_unit)) return;

  auto* const shared = dynamic_shared<T>();
  T* const resident_q = shared + 2 * unit_keys * chunk_columns;  // the queries, unless they stay in registers
  auto* const slots = reinterpret_cast<int*>(resident_q + (warp_width == 32 ? rows * D : 0));
  Loader loader{args, queries, shared, slots, kv_head, last_position, {}};
  int unit = one_unit ? only_unit : first_unit;
  loader.find_slots(unit);

  // Index of element (row, 0) of q or out.
  const auto start_of = [&](int row) {
    return ((queries.first_token + row / group) * a.heads + kv_head * group + row % group) * a.d;
  };
  T* const q_shared = Loader::in_registers ? shared : resident_q;
  TileCopy<T, 16 * warps, D, Loader::threads> q_copy = {};
  q_copy.begin_at({q_shared}, static_cast<const T*>(a.q), a.d,
                  [&](int row) { return first_row + row < queries.rows ? start_of(first_row + row) : int64_t{-1}; });
  q_copy.copies.wait();
  block_barrier();
  const Rows<T, D, 1, Loader::in_registers> q(Tile<T, D>{q_shared}.from_row(warp_index() * 16));
  if constexpr (Loader::in_registers) block_barrier();

  const Exponents exponents(a.score);
  const int window = window_of(a.score);
  const int warp_row = first_row + warp_index() * 16;
  int positions[mma_lane_rows];
  float slopes[mma_lane_rows];
  GPU_UNROLL
  for (int i = 0; i < MmaAccumulator::count; ++i) {
    const int row = warp_row + mma_row(i) < queries.rows ? warp_row + mma_row(i) : queries.rows - 1;
    positions[mma_lane_row(i)] = queries.first_position + row / group;
    slopes[mma_lane_row(i)] = alibi_slope(a.score, kv_head * group + row % group);
  }
  MmaAccumulator out[D / 16] = {};
  float max[mma_lane_rows];
  float total[mma_lane_rows];
  for (float& each : max) each = -infinity();
  for (float& each : total) each = 0;

  loader.begin(unit, 0);
  for (; unit <= (one_unit ? only_unit : last_unit); ++unit) {
    const bool is_last = one_unit || unit == last_unit;
    const int k0 = unit * unit_keys;
    // Number of 16-key tiles that any of the block's rows attends to. Warps without rows only take part in loading.
    const int num_tiles = warp_row <= last_row ? (last_position - k0) / 16 + 1 : 0;
    MmaAccumulator scores[Loader::n_tiles] = {};
    GPU_UNROLL
    for (int c = 0; c < Loader::chunks; ++c) {
      loader.next(unit, c, is_last);
      GPU_UNROLL
      for (int k = 0; k < chunk_columns / mma_k; ++k) {
        const MmaA part = q.at(0, c * (chunk_columns / mma_k) + k);
        GPU_UNROLL
        for (int n = 0; n < Loader::n_tiles; ++n) {
          if (n < num_tiles) mma<T>(scores[n], part, load_b(loader.chunk(c % 2), n * 16, k * mma_k));
        }
      }
    }
    // Weights relative to the row's max score in this unit.
    float unit_max[mma_lane_rows];
    float sum[mma_lane_rows] = {};
    for (float& each : unit_max) each = -infinity();
    GPU_UNROLL
    for (int n = 0; n < Loader::n_tiles; ++n) {
      GPU_UNROLL
      for (int i = 0; i < MmaAccumulator::count; ++i) {
        const int m = mma_lane_row(i);
        const int key = k0 + n * 16 + mma_column(i);
        float score = scores[n].at[i];
        if (!exponents.plain) score = exponents.modified(score, slopes[m], key - positions[m]).value;
        score = attends(positions[m], key, window) ? score : -infinity();
        scores[n].at[i] = score;
        unit_max[m] = score > unit_max[m] ? score : unit_max[m];
      }
    }
    float base[mma_lane_rows];
    GPU_UNROLL
    for (int m = 0; m < mma_lane_rows; ++m) {
      unit_max[m] = row_max(unit_max[m]);
      base[m] = unit_max[m] > -infinity() ? unit_max[m] * exponents.factor : 0.0F;
    }
    GPU_UNROLL
    for (int n = 0; n < Loader::n_tiles; ++n) {
      GPU_UNROLL
      for (int i = 0; i < MmaAccumulator::count; ++i) {
        const int m = mma_lane_row(i);
        scores[n].at[i] = exp2_approx(fma(scores[n].at[i], exponents.factor, -base[m]));
        sum[m] += scores[n].at[i];
      }
    }
    RescaleFactors rescale[mma_lane_rows];
    GPU_UNROLL
    for (int m = 0; m < mma_lane_rows; ++m) {
      sum[m] = row_sum(sum[m]);
      if constexpr (one_unit) {
        max[m] = unit_max[m];
        total[m] = sum[m];
      } else {
        rescale[m] = merge_max(max[m], unit_max[m], exponents.factor);
        total[m] = fma(total[m], rescale[m].old, sum[m] * rescale[m].added);
      }
    }
    MmaA weights[unit_keys / mma_k];
    GPU_UNROLL
    for (int j = 0; j < unit_keys / mma_k; ++j) {
      MmaAccumulator part[operand_tiles];
      GPU_UNROLL
      for (int n = 0; n < operand_tiles; ++n) part[n] = scores[j * operand_tiles + n];
      weights[j] = mma_operand<T>(part);
    }
    GPU_UNROLL
    for (int c = 0; c < Loader::chunks; ++c) {
      loader.next(unit, Loader::chunks + c, is_last);
      GPU_UNROLL
      for (int n = 0; n < chunk_columns / 16; ++n) {
        MmaAccumulator part = {};
        GPU_UNROLL
        for (int j = 0; j < unit_keys / mma_k; ++j) {
          if (j * operand_tiles < num_tiles) {
            mma<T>(part, weights[j], load_b_transposed(loader.chunk((Loader::chunks + c) % 2), j * mma_k, n * 16));
          }
        }
        MmaAccumulator& sum_of_units = out[c * (chunk_columns / 16) + n];
        GPU_UNROLL
        for (int i = 0; i < MmaAccumulator::count; ++i) {
          if constexpr (one_unit) {
            sum_of_units.at[i] = part.at[i];
          } else {
            const RescaleFactors& factors = rescale[mma_lane_row(i)];
            sum_of_units.at[i] = fma(sum_of_units.at[i], factors.old, part.at[i] * factors.added);
          }
        }
      }
    }
  }

  if constexpr (one_unit) {
    if (first_unit < last_unit) {
      GPU_UNROLL
      for (int i = 0; i < MmaAccumulator::count; i += mma_neighbours) {
        const int row = warp_row + mma_row(i);
        if (row >= queries.rows) continue;
        const int64_t at = (start_of(row) / a.d) * args.units + only_unit;
        GPU_UNROLL
        for (int n = 0; n < D / 16; ++n) {
          const int column = n * 16 + mma_column(i);
          Pack<float, mma_neighbours> pack;
          GPU_UNROLL
          for (int j = 0; j < mma_neighbours; ++j) pack.at[j] = out[n].at[i + j];
          if (column < a.d) store_pack(args.parts + at * a.d + column, pack);
        }
        if (mma_column(i) == 0) {
          args.stats[at * 2] = max[mma_lane_row(i)];
          args.stats[at * 2 + 1] = total[mma_lane_row(i)];
        }
      }
      const int tiles = a.kv_heads * ((group + rows - 1) / rows);
      int32_t* const arrivals = args.arrivals + queries.first_token * tiles + block_index_y();
      if (arrives_last(arrivals, last_unit - first_unit + 1, slots)) {
        combine_units<T, Loader::threads>(args, queries.first_token, kv_head * group + first_row,
                                          last_row - first_row + 1, first_unit, last_unit);
      }
      return;
    }
    // As if added to the sum of no units: -0 becomes 0.
    GPU_UNROLL
    for (int n = 0; n < D / 16; ++n) {
      GPU_UNROLL
      for (int i = 0; i < MmaAccumulator::count; ++i) out[n].at[i] += 0.0F;
    }
  }
  int64_t at[mma_lane_rows];
  float factors[mma_lane_rows];
  GPU_UNROLL
  for (int i = 0; i < MmaAccumulator::count; ++i) {
    const int row = warp_row + mma_row(i);
    at[mma_lane_row(i)] = row < queries.rows ? start_of(row) : -1;
  }
  GPU_UNROLL
  for (int m = 0; m < mma_lane_rows; ++m) factors[m] = 1.0F / total[m];
  store_rows(static_cast<T*>(a.out), at, a.d, out, factors);
}

// Sequence s owns the blocks from offsets[s] group / rows + s on.
template <class T, int D, int warps>
GPU_FN void all_units(const PagedTilesArgs& args) {
  const PagedAttentionArgs& a = args.paged;
  const int64_t group = a.heads / a.kv_heads;
  const int rows = 16 * warps;
  int low = 0;
  int high = a.sequences - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (a.query_offsets[middle] * group / rows + middle <= block_index()) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  const int first_token = a.query_offsets[low];
  const int tokens = a.query_offsets[low + 1] - first_token;
  const Queries queries{first_token, static_cast<int>(tokens * group), a.lengths[low] - tokens, low};
  const auto first_row = static_cast<int>((block_index() - (first_token * group / rows + low)) * rows);
  if (first_row < queries.rows) over_pages<T, D, warps, false>(args, queries, first_row, 0);
}

// Grid: x is (token, unit), y is (tile of the group's rows, key/value head).
template <class T, int D, int warps>
GPU_FN void one_unit_of_token(const PagedTilesArgs& args) {
  const PagedAttentionArgs& a = args.paged;
  const int token = block_index() / args.units;
  const int s = sequence_of(a.query_offsets, a.sequences, token);
  const Queries queries{token, a.heads / a.kv_heads, a.lengths[s] - (a.query_offsets[s + 1] - token), s};
  over_pages<T, D, warps, true>(args, queries, block_index_y() / a.kv_heads * 16 * warps, block_index() % args.units);
}

}  // namespace

#define PAGED_BODIES(NAME, T)                                                           \
  GPU_KERNEL_BODY(NAME##_64, PagedTilesArgs) { all_units<T, 64, 4>(a); }                \
  GPU_KERNEL_BODY(NAME##_128, PagedTilesArgs) { all_units<T, 128, 4>(a); }              \
  GPU_KERNEL_BODY(NAME##_256, PagedTilesArgs) { all_units<T, 256, 2>(a); }              \
  GPU_KERNEL_BODY(NAME##_unit_64, PagedTilesArgs) { one_unit_of_token<T, 64, 2>(a); }   \
  GPU_KERNEL_BODY(NAME##_unit_128, PagedTilesArgs) { one_unit_of_token<T, 128, 2>(a); } \
  GPU_KERNEL_BODY(NAME##_unit_256, PagedTilesArgs) { one_unit_of_token<T, 256, 2>(a); }
PAGED_BODIES(paged, Bf16)
PAGED_BODIES(paged_f16, F16)

}  // namespace ingot::gpu::GPU_TARGET

#else

#include "backend/gpu/launch.h"
#include "backend/gpu/ops.h"
#include "ops/attention_bytes.h"

namespace ingot::gpu {
namespace {

using ops::Context;

static_assert(unit_keys == ops::attention_split_keys);

// The kernels of one dtype; arrays by the max head dimension: 64, 128, 256.
struct PagedKernels {
  const Kernel<PagedTilesArgs>*all[3], *unit[3];
};
#define PAGED_TABLE(NAME)                                                                           \
  {                                                                                                 \
    {&NAME##_64, &NAME##_128, &NAME##_256}, { &NAME##_unit_64, &NAME##_unit_128, &NAME##_unit_256 } \
  }
constexpr PagedKernels bf16_kernels PAGED_TABLE(paged);
constexpr PagedKernels f16_kernels PAGED_TABLE(paged_f16);

void run_paged(Context& context, const Tensor& out, const Tensor& q, const ops::KvPages& pages,
               const ops::PagedLayout& layout, ops::AttentionAttributes attributes) {
  PagedTilesArgs args{paged_args(out, q, pages, layout, attributes), nullptr, nullptr, nullptr, 0};
  const int64_t d = attributes.head_dim;
  const PagedKernels& kernels = q.dtype == DType::bf16 ? bf16_kernels : f16_kernels;
  const size_t size = d <= 64 ? 0 : d <= 128 ? 1 : 2;
  const int64_t padded_d = int64_t{64} << size;
  const int64_t group = attributes.heads / attributes.kv_heads;
  const int64_t q_row_bytes =
      device_of(context).warp_width() == 32 ? padded_d * 2 : 0;  // bytes of a query row in shared memory
  const int64_t chunks_and_slots = 2 * unit_keys * 64 * 2 + 2 * unit_keys * 4;
  const auto shared = [&](int64_t warps) { return static_cast<size_t>(chunks_and_slots + 16 * warps * q_row_bytes); };

  const int64_t tokens = q.shape[0];
  const int64_t longest = args.paged.max_pages * args.paged.page;
  const int64_t units = blocks_of(longest, unit_keys);
  const size_t bytes = ops::attention_splits_bytes(tokens, longest, attributes.heads, d);
  Arena& scratch = context.scratch;
  // One new token per sequence, as in decoding: a block for every unit, if there are counters, and room for the partial
  // results.
  if (tokens <= args.paged.sequences && layout.arrivals && bytes <= scratch.capacity() - scratch.used()) {
    const Arena::Scope scope(scratch);
    args.units = static_cast<int32_t>(units);
    const int64_t rows = tokens * attributes.heads * units;
    args.parts = static_cast<float*>(scratch.allocate_bytes(static_cast<size_t>(rows * d) * sizeof(float)));
    args.stats = static_cast<float*>(scratch.allocate_bytes(static_cast<size_t>(rows * 2) * sizeof(float)));
    args.arrivals = layout.arrivals.as<int32_t>();
    launch(context, *kernels.unit[size], {tokens * units, attributes.kv_heads * blocks_of(group, 32)}, args, shared(2));
    return;
  }
  const int64_t warps = padded_d == 256 ? 2 : 4;
  launch(context, *kernels.all[size], {tokens * group / (16 * warps) + args.paged.sequences, attributes.kv_heads}, args,
         shared(warps));
}
bool decline_paged(const Context&, const Tensor& out, const Tensor& q, const ops::KvPages& pages,
                   const ops::PagedLayout&, ops::AttentionAttributes attributes, ops::Refusal refuse) {
  return decline_tiles(attributes, {q, out, pages.k, pages.v}, refuse);
}

}  // namespace

void register_attention_paged(ops::Registry& registry, DeviceKind kind) {
  registry.add<ops::PagedAttention>(kind, "mma", run_paged, decline_paged);
}

}  // namespace ingot::gpu
#endif
