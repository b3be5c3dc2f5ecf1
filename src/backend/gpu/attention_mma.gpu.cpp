// Flash attention on the matrix cores (Dao 2023, arXiv 2307.08691) for bf16 and packed sequences: a block has 64
// queries of one head (64 keys in the gradient of keys and values) and goes over the keys (queries) tile by tile. Tiles
// start at the sequence's own first token and sums run in order, so results are deterministic and know nothing of the
// neighbours in the pack.
#include "backend/gpu/attention_args.h"

namespace ingot::gpu {

struct FlashArgs {
  PackedAttentionArgs packed;
  float* delta;  // [heads, tokens]: <dout, out>, made by the first kernel of the backward pass
};

}  // namespace ingot::gpu

// The suffix is the most elements of a head.
GPU_KERNEL(flash_64, PackedAttentionArgs, 128)
GPU_KERNEL(flash_128, PackedAttentionArgs, 128)
GPU_KERNEL(flash_256, PackedAttentionArgs, 128)
GPU_KERNEL(flash_delta, FlashArgs, 128)
GPU_KERNEL(flash_dq_64, FlashArgs, 128)
GPU_KERNEL(flash_dq_128, FlashArgs, 128)
GPU_KERNEL(flash_dkv_64, FlashArgs, 128)
GPU_KERNEL(flash_dkv_128, FlashArgs, 128)

#if GPU_KERNEL_PASS
namespace ingot::gpu::GPU_TARGET {
namespace {

constexpr int threads = 128;
constexpr int warps = threads / warp_width;
constexpr int tile = 64;                       // queries, or keys, of a block
constexpr int warp_tiles = tile / 16 / warps;  // 16-row tiles of a warp
constexpr float log2_e = 1.44269504F;
constexpr float ln_2 = 0.693147181F;

GPU_FN float infinity() { return bits_of<float>(0x7f800000); }

// Row strides in shared memory: 16 bytes more than the rows, so that neighbouring rows lie in other banks.
template <int columns>
constexpr int stride_of = columns + 8;

// Which 64 tokens of which sequence block b has. Sequence s gets the blocks from offsets[s] / 64 + s on: enough of
// them.
struct Place {
  int64_t start;   // of the sequence, in the pack
  int64_t length;  // of the sequence
  int64_t first;   // of the block, in the sequence; not below `length`: the block has nothing to do
};
GPU_FN Place place_of(const PackedAttentionArgs& a) {
  const int64_t block = block_index();
  int low = 0;
  int high = a.sequences - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (a.offsets[middle] / tile + middle <= block) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  const int64_t start = a.offsets[low];
  return {start, a.offsets[low + 1] - start, (block - (start / tile + low)) * tile};
}

// Rows [first, first + rows) of a matrix into shared memory; zeros from row `end` and from column d on.
template <int rows, int columns>
GPU_FN void copy_rows(Bf16* to, const Bf16* from, int64_t row_stride, int64_t first, int64_t end, int d) {
  for (int p = thread_index(); p < rows * columns / 8; p += threads) {
    const int row = p / (columns / 8);
    const int column = p % (columns / 8) * 8;
    Pack<Bf16, 8> pack = {};
    if (first + row < end && column < d) pack = load_pack<Bf16, 8>(from + (first + row) * row_stride + column);
    store_pack<Bf16, 8>(to + row * stride_of<columns> + column, pack);
  }
}

// The same, transposed: [columns][rows].
template <int rows, int columns>
GPU_FN void copy_transposed(Bf16* to, const Bf16* from, int64_t row_stride, int64_t first, int64_t end, int d) {
  for (int p = thread_index(); p < rows * columns / 8; p += threads) {
    const int row = p % rows;
    const int column = p / rows * 8;
    Pack<Bf16, 8> pack = {};
    if (first + row < end && column < d) pack = load_pack<Bf16, 8>(from + (first + row) * row_stride + column);
    for (int i = 0; i < 8; ++i) to[(column + i) * stride_of<rows> + row] = pack.at[i];
  }
}

// 16 rows of a, as a lane holds them.
template <int columns>
struct RowTile {
  MmaA at[columns / mma_k];
};
template <int columns>
GPU_FN RowTile<columns> load_rows(const Bf16* from) {
  RowTile<columns> rows;
  GPU_UNROLL
  for (int k = 0; k < columns / mma_k; ++k) rows.at[k] = mma_load_a(from + k * mma_k, stride_of<columns>);
  return rows;
}
// The block's 64 rows of a matrix, through shared memory `room` (64 rows of D) into the registers of their warps.
template <int D>
GPU_FN void stage(RowTile<D> (&rows)[warp_tiles], Bf16* room, const Bf16* from, int64_t row_stride, const Place& place,
                  int d) {
  block_barrier();  // what was in `room` has been read
  copy_rows<tile, D>(room, from, row_stride, place.first, place.length, d);
  block_barrier();
  GPU_UNROLL
  for (int r = 0; r < warp_tiles; ++r) {
    rows[r] = load_rows<D>(room + (warp_index() * warp_tiles + r) * 16 * stride_of<D>);
  }
}

// Where a sequence's rows of one head begin, and how far apart they are.
struct HeadRows {
  int64_t start, stride;
};
GPU_FN HeadRows head_rows(const PackedAttentionArgs& a, const Place& place, int heads, int head) {
  const int64_t stride = static_cast<int64_t>(heads) * a.d;
  return {place.start * stride + static_cast<int64_t>(head) * a.d, stride};
}

// sums += rows b^T for 16 rows of b in shared memory.
template <int columns>
GPU_FN void multiply(MmaSums& sums, const RowTile<columns>& rows, const Bf16* b) {
  GPU_UNROLL
  for (int k = 0; k < columns / mma_k; ++k) mma(sums, rows.at[k], mma_load_b(b + k * mma_k, stride_of<columns>));
}

template <int columns>
struct Output {
  MmaSums at[columns / 16] = {};
};
// sums += rows b^T for all rows of b: [columns][inner] in shared memory.
template <int columns, int inner>
GPU_FN void multiply_all(Output<columns>& sums, const RowTile<inner>& rows, const Bf16* b) {
  GPU_UNROLL
  for (int n = 0; n < columns / 16; ++n) multiply<inner>(sums.at[n], rows, b + n * 16 * stride_of<inner>);
}

// Rows first + 16 r + ... of the block's 64, r counting its tiles over the warps.
template <int columns>
GPU_FN void put(Bf16* to, int64_t row_stride, int64_t first, int64_t end, int d, const Output<columns>& sums,
                const float (&factors)[mma_lane_rows]) {
  GPU_UNROLL
  for (int n = 0; n < columns / 16; ++n) {
    GPU_UNROLL
    for (int i = 0; i < MmaSums::count; ++i) {
      const int64_t row = first + mma_row(i);
      const int column = n * 16 + mma_column(i);
      if (row < end && column < d) {
        to[row * row_stride + column] = from_float<Bf16>(sums.at[n].at[i] * factors[mma_lane_row(i)]);
      }
    }
  }
}

GPU_FN bool sees(const ScoreArgs& a, int64_t query, int64_t key, int64_t length) {
  return key <= query && query < length && (a.window <= 0 || key > query - a.window);
}

GPU_FN float over_row_lanes_sum(float value) {
  GPU_UNROLL
  for (int mask = mma_row_mask; mask < mma_row_mask_end; mask *= 2) value += shuffle_xor(value, mask);
  return value;
}
GPU_FN float over_row_lanes_max(float value) {
  GPU_UNROLL
  for (int mask = mma_row_mask; mask < mma_row_mask_end; mask *= 2) {
    const float other = shuffle_xor(value, mask);
    value = other > value ? other : value;
  }
  return value;
}

template <int D, int keys>
GPU_FN void forward(const PackedAttentionArgs& a) {
  auto* const k_tile = dynamic_shared<Bf16>();         // [keys][D]
  Bf16* const v_tile = k_tile + keys * stride_of<D>;   // [D][keys]
  Bf16* const weights = v_tile + D * stride_of<keys>;  // [64][keys]
  const Place place = place_of(a);
  if (place.first >= place.length) return;
  const int head = block_index_y();
  const auto [q_start, q_stride] = head_rows(a, place, a.heads, head);
  const auto [kv_start, kv_stride] = head_rows(a, place, a.kv_heads, head / (a.heads / a.kv_heads));

  RowTile<D> q[warp_tiles];
  stage<D>(q, k_tile, static_cast<const Bf16*>(a.q) + q_start, q_stride, place, a.d);
  Output<D> out[warp_tiles];
  float top[warp_tiles][mma_lane_rows];
  float total[warp_tiles][mma_lane_rows] = {};
  GPU_UNROLL
  for (int r = 0; r < warp_tiles; ++r) {
    for (float& each : top[r]) each = -infinity();
  }

  const int64_t last = place.first + tile < place.length ? place.first + tile : place.length;
  for (int64_t k0 = first_key(a.score, place.first) / keys * keys; k0 < last; k0 += keys) {
    block_barrier();
    copy_rows<keys, D>(k_tile, static_cast<const Bf16*>(a.k) + kv_start, kv_stride, k0, place.length, a.d);
    copy_transposed<keys, D>(v_tile, static_cast<const Bf16*>(a.v) + kv_start, kv_stride, k0, place.length, a.d);
    block_barrier();
    GPU_UNROLL
    for (int r = 0; r < warp_tiles; ++r) {
      const int row = (warp_index() * warp_tiles + r) * 16;
      MmaSums scores[keys / 16] = {};
      float most[mma_lane_rows];
      for (float& each : most) each = -infinity();
      GPU_UNROLL
      for (int n = 0; n < keys / 16; ++n) {
        multiply<D>(scores[n], q[r], k_tile + n * 16 * stride_of<D>);
        GPU_UNROLL
        for (int i = 0; i < MmaSums::count; ++i) {
          const int64_t query = place.first + row + mma_row(i);
          const int64_t key = k0 + n * 16 + mma_column(i);
          const float score = sees(a.score, query, key, place.length)
                                  ? score_of(a.score, scores[n].at[i], head, key - query).value * log2_e
                                  : -infinity();
          scores[n].at[i] = score;
          float& largest = most[mma_lane_row(i)];
          largest = score > largest ? score : largest;
        }
      }
      float share[mma_lane_rows];
      float base[mma_lane_rows];
      GPU_UNROLL
      for (int m = 0; m < mma_lane_rows; ++m) {
        const float largest = over_row_lanes_max(most[m]);
        const float new_top = largest > top[r][m] ? largest : top[r][m];
        base[m] = new_top > -infinity() ? new_top : 0.0F;  // nothing seen so far: every weight is 0
        share[m] = power_of_two(top[r][m] - base[m]);
        top[r][m] = new_top;
        total[r][m] *= share[m];
      }
      GPU_UNROLL
      for (int n = 0; n < keys / 16; ++n) {
        GPU_UNROLL
        for (int i = 0; i < MmaSums::count; ++i) {
          const float weight = power_of_two(scores[n].at[i] - base[mma_lane_row(i)]);
          total[r][mma_lane_row(i)] += weight;
          weights[(row + mma_row(i)) * stride_of<keys> + n * 16 + mma_column(i)] = from_float<Bf16>(weight);
        }
      }
      GPU_UNROLL
      for (int n = 0; n < D / 16; ++n) {
        GPU_UNROLL
        for (int i = 0; i < MmaSums::count; ++i) out[r].at[n].at[i] *= share[mma_lane_row(i)];
      }
      warp_barrier();
      multiply_all<D, keys>(out[r], load_rows<keys>(weights + row * stride_of<keys>), v_tile);
    }
  }
  GPU_UNROLL
  for (int r = 0; r < warp_tiles; ++r) {
    const int64_t row = place.first + (warp_index() * warp_tiles + r) * 16;
    float factors[mma_lane_rows];
    GPU_UNROLL
    for (int m = 0; m < mma_lane_rows; ++m) {
      total[r][m] = over_row_lanes_sum(total[r][m]);
      factors[m] = 1.0F / total[r][m];
    }
    put<D>(static_cast<Bf16*>(a.out) + q_start, q_stride, row, place.length, a.d, out[r], factors);
    if (a.lse == nullptr) continue;
    GPU_UNROLL
    for (int i = 0; i < MmaSums::count; ++i) {
      if (mma_column(i) == 0 && row + mma_row(i) < place.length) {
        const int m = mma_lane_row(i);
        a.lse[head * a.tokens + place.start + row + mma_row(i)] = fma(top[r][m], ln_2, logarithm(total[r][m]));
      }
    }
  }
}

// A warp for a query and head.
GPU_FN void dots(const FlashArgs& args) {
  const PackedAttentionArgs& a = args.packed;
  const int64_t row = static_cast<int64_t>(block_index()) * warps + warp_index();
  if (row >= a.tokens) return;
  const int head = block_index_y();
  const int64_t at = (row * a.heads + head) * a.d;
  float sum = 0;
  for (int i = lane_index(); i < a.d; i += warp_width) {
    sum =
        fma(to_float(static_cast<const Bf16*>(a.out)[at + i]), to_float(static_cast<const Bf16*>(a.dout)[at + i]), sum);
  }
  sum = warp_sum(sum);
  if (lane_index() == 0) args.delta[head * a.tokens + row] = sum;
}

// What becomes of a score and of <dout, v>: the weight and the score's gradient, of <q, k>.
struct Gradient {
  float weight, slope;
};
GPU_FN Gradient gradient_of(const ScoreArgs& a, float product, float of_value, float lse, float delta, int head,
                            int64_t distance) {
  const Score score = score_of(a, product, head, distance);
  const float weight = power_of_two((score.value - lse) * log2_e);
  return {weight, weight * (of_value - delta) * score.slope};
}

template <int D, int keys>
GPU_FN void query_gradient(const FlashArgs& args) {
  const PackedAttentionArgs& a = args.packed;
  auto* const k_tile = dynamic_shared<Bf16>();           // [keys][D]
  Bf16* const v_tile = k_tile + keys * stride_of<D>;     // [keys][D]
  Bf16* const k_columns = v_tile + keys * stride_of<D>;  // [D][keys]
  Bf16* const slopes = k_columns + D * stride_of<keys>;  // [64][keys]
  const Place place = place_of(a);
  if (place.first >= place.length) return;
  const int head = block_index_y();
  const auto [q_start, q_stride] = head_rows(a, place, a.heads, head);
  const auto [kv_start, kv_stride] = head_rows(a, place, a.kv_heads, head / (a.heads / a.kv_heads));

  RowTile<D> q[warp_tiles];
  RowTile<D> dout[warp_tiles];
  Output<D> dq[warp_tiles];
  float lse[warp_tiles][mma_lane_rows];
  float delta[warp_tiles][mma_lane_rows];
  stage<D>(q, k_tile, static_cast<const Bf16*>(a.q) + q_start, q_stride, place, a.d);
  stage<D>(dout, k_tile, static_cast<const Bf16*>(a.dout) + q_start, q_stride, place, a.d);
  GPU_UNROLL
  for (int r = 0; r < warp_tiles; ++r) {
    GPU_UNROLL
    for (int i = 0; i < MmaSums::count; ++i) {
      const int64_t row = place.first + (warp_index() * warp_tiles + r) * 16 + mma_row(i);
      const int64_t at = head * a.tokens + place.start + (row < place.length ? row : 0);
      lse[r][mma_lane_row(i)] = a.lse[at];
      delta[r][mma_lane_row(i)] = args.delta[at];
    }
  }

  const int64_t last = place.first + tile < place.length ? place.first + tile : place.length;
  for (int64_t k0 = first_key(a.score, place.first) / keys * keys; k0 < last; k0 += keys) {
    block_barrier();
    copy_rows<keys, D>(k_tile, static_cast<const Bf16*>(a.k) + kv_start, kv_stride, k0, place.length, a.d);
    copy_rows<keys, D>(v_tile, static_cast<const Bf16*>(a.v) + kv_start, kv_stride, k0, place.length, a.d);
    copy_transposed<keys, D>(k_columns, static_cast<const Bf16*>(a.k) + kv_start, kv_stride, k0, place.length, a.d);
    block_barrier();
    GPU_UNROLL
    for (int r = 0; r < warp_tiles; ++r) {
      const int row = (warp_index() * warp_tiles + r) * 16;
      GPU_UNROLL
      for (int n = 0; n < keys / 16; ++n) {
        MmaSums products = {};
        MmaSums of_values = {};
        multiply<D>(products, q[r], k_tile + n * 16 * stride_of<D>);
        multiply<D>(of_values, dout[r], v_tile + n * 16 * stride_of<D>);
        GPU_UNROLL
        for (int i = 0; i < MmaSums::count; ++i) {
          const int64_t query = place.first + row + mma_row(i);
          const int64_t key = k0 + n * 16 + mma_column(i);
          const float slope = sees(a.score, query, key, place.length)
                                  ? gradient_of(a.score, products.at[i], of_values.at[i], lse[r][mma_lane_row(i)],
                                                delta[r][mma_lane_row(i)], head, key - query)
                                        .slope
                                  : 0.0F;
          slopes[(row + mma_row(i)) * stride_of<keys> + n * 16 + mma_column(i)] = from_float<Bf16>(slope);
        }
      }
      warp_barrier();
      multiply_all<D, keys>(dq[r], load_rows<keys>(slopes + row * stride_of<keys>), k_columns);
    }
  }
  GPU_UNROLL
  for (int r = 0; r < warp_tiles; ++r) {
    float ones[mma_lane_rows];
    for (float& each : ones) each = 1.0F;
    put<D>(static_cast<Bf16*>(a.dq) + q_start, q_stride, place.first + (warp_index() * warp_tiles + r) * 16,
           place.length, a.d, dq[r], ones);
  }
}

template <int D, int queries>
GPU_FN void key_gradient(const FlashArgs& args) {
  const PackedAttentionArgs& a = args.packed;
  auto* const q_tile = dynamic_shared<Bf16>();                    // [queries][D]
  Bf16* const dout_tile = q_tile + queries * stride_of<D>;        // [queries][D]
  Bf16* const q_columns = dout_tile + queries * stride_of<D>;     // [D][queries]
  Bf16* const dout_columns = q_columns + D * stride_of<queries>;  // [D][queries]
  Bf16* const weights = dout_columns + D * stride_of<queries>;    // [64][queries], then the slopes
  const Place place = place_of(a);
  if (place.first >= place.length) return;
  const int kv_head = block_index_y();
  const int group = a.heads / a.kv_heads;
  const auto [kv_start, kv_stride] = head_rows(a, place, a.kv_heads, kv_head);

  RowTile<D> k[warp_tiles];
  RowTile<D> v[warp_tiles];
  Output<D> dk[warp_tiles];
  Output<D> dv[warp_tiles];
  stage<D>(k, q_tile, static_cast<const Bf16*>(a.k) + kv_start, kv_stride, place, a.d);
  stage<D>(v, q_tile, static_cast<const Bf16*>(a.v) + kv_start, kv_stride, place, a.d);

  int64_t end = place.length;  // of the queries that see one of these keys
  if (a.score.window > 0 && place.first + tile - 1 + a.score.window < end)
    end = place.first + tile - 1 + a.score.window;
  for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    const auto [q_start, q_stride] = head_rows(a, place, a.heads, head);
    const auto* q = static_cast<const Bf16*>(a.q) + q_start;
    const auto* dout = static_cast<const Bf16*>(a.dout) + q_start;
    const float* lse = a.lse + head * a.tokens + place.start;
    const float* delta = args.delta + head * a.tokens + place.start;
    for (int64_t q0 = place.first; q0 < end;
         q0 += queries) {  // a multiple of `queries`: no query before sees these keys
      block_barrier();
      copy_rows<queries, D>(q_tile, q, q_stride, q0, place.length, a.d);
      copy_rows<queries, D>(dout_tile, dout, q_stride, q0, place.length, a.d);
      copy_transposed<queries, D>(q_columns, q, q_stride, q0, place.length, a.d);
      copy_transposed<queries, D>(dout_columns, dout, q_stride, q0, place.length, a.d);
      block_barrier();
      GPU_UNROLL
      for (int r = 0; r < warp_tiles; ++r) {
        const int row = (warp_index() * warp_tiles + r) * 16;
        MmaSums slopes[queries / 16];
        GPU_UNROLL
        for (int n = 0; n < queries / 16; ++n) {
          MmaSums products = {};
          MmaSums of_values = {};
          multiply<D>(products, k[r], q_tile + n * 16 * stride_of<D>);
          multiply<D>(of_values, v[r], dout_tile + n * 16 * stride_of<D>);
          GPU_UNROLL
          for (int i = 0; i < MmaSums::count; ++i) {
            const int64_t key = place.first + row + mma_row(i);
            const int64_t query = q0 + n * 16 + mma_column(i);
            Gradient gradient = {};
            if (sees(a.score, query, key, place.length)) {
              gradient =
                  gradient_of(a.score, products.at[i], of_values.at[i], lse[query], delta[query], head, key - query);
            }
            slopes[n].at[i] = gradient.slope;
            weights[(row + mma_row(i)) * stride_of<queries> + n * 16 + mma_column(i)] =
                from_float<Bf16>(gradient.weight);
          }
        }
        warp_barrier();
        multiply_all<D, queries>(dv[r], load_rows<queries>(weights + row * stride_of<queries>), dout_columns);
        warp_barrier();
        GPU_UNROLL
        for (int n = 0; n < queries / 16; ++n) {
          GPU_UNROLL
          for (int i = 0; i < MmaSums::count; ++i) {
            weights[(row + mma_row(i)) * stride_of<queries> + n * 16 + mma_column(i)] =
                from_float<Bf16>(slopes[n].at[i]);
          }
        }
        warp_barrier();
        multiply_all<D, queries>(dk[r], load_rows<queries>(weights + row * stride_of<queries>), q_columns);
      }
    }
  }
  GPU_UNROLL
  for (int r = 0; r < warp_tiles; ++r) {
    float ones[mma_lane_rows];
    for (float& each : ones) each = 1.0F;
    const int64_t row = place.first + (warp_index() * warp_tiles + r) * 16;
    put<D>(static_cast<Bf16*>(a.dk) + kv_start, kv_stride, row, place.length, a.d, dk[r], ones);
    put<D>(static_cast<Bf16*>(a.dv) + kv_start, kv_stride, row, place.length, a.d, dv[r], ones);
  }
}

}  // namespace

GPU_KERNEL_BODY(flash_64, PackedAttentionArgs) { forward<64, 64>(a); }
GPU_KERNEL_BODY(flash_128, PackedAttentionArgs) { forward<128, 64>(a); }
GPU_KERNEL_BODY(flash_256, PackedAttentionArgs) { forward<256, 32>(a); }
GPU_KERNEL_BODY(flash_delta, FlashArgs) { dots(a); }
GPU_KERNEL_BODY(flash_dq_64, FlashArgs) { query_gradient<64, 64>(a); }
GPU_KERNEL_BODY(flash_dq_128, FlashArgs) { query_gradient<128, 32>(a); }
GPU_KERNEL_BODY(flash_dkv_64, FlashArgs) { key_gradient<64, 64>(a); }
GPU_KERNEL_BODY(flash_dkv_128, FlashArgs) { key_gradient<128, 32>(a); }

}  // namespace ingot::gpu::GPU_TARGET

#else

#include "backend/gpu/launch.h"
#include "backend/gpu/ops.h"
#include "ops/attention_bytes.h"

namespace ingot::gpu {
namespace {

using ops::Context;

constexpr int64_t tile = 64;

// Bytes of bf16 tiles in shared memory: rows of `columns` and 8 elements of padding.
size_t tile_bytes(int64_t rows, int64_t columns) { return static_cast<size_t>(rows * (columns + 8) * 2); }

int64_t padded_d(int64_t d) { return d <= 64 ? 64 : d <= 128 ? 128 : 256; }

Grid grid_of(const PackedAttentionArgs& args, int64_t heads) {
  return {args.sequences > 0 ? args.tokens / tile + args.sequences : 0, heads};
}

std::string decline(const ops::AttentionAttributes& attributes, int64_t most_d, std::initializer_list<Tensor> tensors) {
  if (tensors.begin()->dtype != DType::bf16) return "takes bf16 only";
  if (attributes.head_dim > most_d) return fmt::format("heads of {} elements; at most {}", attributes.head_dim, most_d);
  if (attributes.head_dim % 8 != 0) return fmt::format("heads of {} elements; a multiple of 8", attributes.head_dim);
  return in_packs(8, tensors) ? std::string() : "tensors that are not aligned to 16 bytes";
}

void run_forward(Context& context, const Tensor& out, const Tensor& lse, const Tensor& q, const Tensor& k,
                 const Tensor& v, const Tensor& offsets, ops::AttentionAttributes attributes) {
  const PackedAttentionArgs args = packed_args(out, lse, q, k, v, offsets, attributes);
  const int64_t d = padded_d(attributes.head_dim);
  const int64_t keys = d == 256 ? 32 : 64;
  const size_t shared = tile_bytes(keys, d) + tile_bytes(d, keys) + tile_bytes(tile, keys);
  launch(context, d == 64 ? flash_64 : d == 128 ? flash_128 : flash_256, grid_of(args, attributes.heads), args, shared);
}
std::string decline_forward(const Context&, const Tensor& out, const Tensor&, const Tensor& q, const Tensor& k,
                            const Tensor& v, const Tensor&, ops::AttentionAttributes attributes) {
  return decline(attributes, 256, {q, k, v, out});
}

void run_backward(Context& context, const Tensor& dq, const Tensor& dk, const Tensor& dv, const Tensor& dout,
                  const ops::AttentionSaved& saved, const Tensor& offsets, ops::AttentionAttributes attributes) {
  FlashArgs args{packed_args(saved.out, saved.lse, saved.q, saved.k, saved.v, offsets, attributes), nullptr};
  args.packed.dout = dout.data;
  args.packed.dq = dq.data;
  args.packed.dk = dk.data;
  args.packed.dv = dv.data;
  const Arena::Scope scope(context.scratch);
  args.delta = static_cast<float*>(
      context.scratch.take_bytes(static_cast<size_t>(args.packed.tokens * attributes.heads) * sizeof(float)));
  const int64_t warps = 128 / device_of(context).warp_width();
  const bool small = attributes.head_dim <= 64;
  const int64_t d = small ? 64 : 128;
  const int64_t inner = small ? 64 : 32;  // keys or queries at a time
  const size_t rows = tile_bytes(inner, d);
  const size_t columns = tile_bytes(d, inner);
  launch(context, flash_delta, {blocks_of(args.packed.tokens, warps), attributes.heads}, args);
  launch(context, small ? flash_dq_64 : flash_dq_128, grid_of(args.packed, attributes.heads), args,
         2 * rows + columns + tile_bytes(tile, inner));
  launch(context, small ? flash_dkv_64 : flash_dkv_128, grid_of(args.packed, attributes.kv_heads), args,
         2 * rows + 2 * columns + tile_bytes(tile, inner));
}
std::string decline_backward(const Context&, const Tensor& dq, const Tensor& dk, const Tensor& dv, const Tensor& dout,
                             const ops::AttentionSaved& saved, const Tensor&, ops::AttentionAttributes attributes) {
  return decline(attributes, 128, {dq, dk, dv, dout, saved.out, saved.q, saved.k, saved.v});
}

}  // namespace

void register_attention_mma(ops::Registry& registry, DeviceKind kind) {
  registry.add<ops::Attention>(kind, "mma", run_forward, decline_forward);
  registry.add<ops::AttentionBackward>(kind, "mma", run_backward, decline_backward);
}

}  // namespace ingot::gpu
#endif
