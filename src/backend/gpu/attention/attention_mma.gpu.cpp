// Flash attention on tensor cores (Dao 2023, arXiv 2307.08691) over packed sequences in bf16; the forward pass also in
// f16. A warp has 16 or 32 queries of one head (keys, in the gradient of keys and values), and its block loops over
// tiles of keys (queries), loading the next tile while the current one is multiplied. Scores become operands of the
// second gemm in registers. Tiles start at the sequence's own first token and sums run in order, so results are
// deterministic and do not depend on the other sequences in the pack.
//
// bench/reports/2026-11-22-gpu-attention-analysis.md has the counts behind the shapes below. No block uses more than
// 64 KiB of shared memory, which all devices have.
#include "backend/gpu/attention/attention_tiles.h"

namespace ingot::gpu {

struct FlashArgs {
  PackedAttentionArgs packed;
  float* delta;  // [heads, tokens]: <dout, out>, computed by the first kernel of the backward pass
};

// The shape of a kernel for heads of up to `d` elements (64, 128 or 256) and warps of `lanes` lanes. `wide`: an operand
// takes 8 registers of a lane (RDNA 3), so that fewer rows fit.
struct FlashShape {
  int warps;
  int tiles;  // of 16 rows, per warp
  int inner;  // rows of the tiles that the block loops over

  GPU_FN constexpr int rows() const { return 16 * warps * tiles; }
  // Two stages of two tiles each; with 32 lanes also `kept` matrices of the block's own rows.
  GPU_FN constexpr size_t shared_bytes(int d, int lanes, int kept) const {
    const int kept_rows = lanes == 32 ? kept * rows() : 0;
    return sizeof(uint16_t) * static_cast<size_t>(4 * inner + kept_rows) * static_cast<size_t>(d);
  }
};
GPU_FN constexpr FlashShape forward_shape(int d, int lanes, bool wide) {
  return d == 256           ? FlashShape{4, 1, lanes == 64 ? 32 : 16}
         : d == 128 && wide ? FlashShape{4, 1, 16}
                            : FlashShape{4, 2, 32};
}
GPU_FN constexpr FlashShape dq_shape(int d, int lanes, bool wide) {
  return d == 64    ? FlashShape{4, wide ? 1 : 2, 32}
         : d == 128 ? FlashShape{4, lanes / 32, 32}
                    : FlashShape{2, 1, lanes == 64 ? 32 : 16};
}
GPU_FN constexpr FlashShape dkv_shape(int d, int lanes, bool wide) {
  return d == 256 ? FlashShape{2, 1, lanes == 64 ? 32 : 16} : FlashShape{4, lanes / 32, wide ? 16 : 32};
}

}  // namespace ingot::gpu

// The suffix is the max head dimension.
GPU_KERNEL_PAIRED(flash_64, PackedAttentionArgs, 4)
GPU_KERNEL_PAIRED(flash_128, PackedAttentionArgs, 4)
GPU_KERNEL_WARPS(flash_256, PackedAttentionArgs, 4)
GPU_KERNEL_PAIRED(flash_f16_64, PackedAttentionArgs, 4)
GPU_KERNEL_PAIRED(flash_f16_128, PackedAttentionArgs, 4)
GPU_KERNEL_WARPS(flash_f16_256, PackedAttentionArgs, 4)
GPU_KERNEL(flash_delta, FlashArgs, 128)
GPU_KERNEL_PAIRED(flash_dq_64, FlashArgs, 4)
GPU_KERNEL_WARPS(flash_dq_128, FlashArgs, 4)
GPU_KERNEL_WARPS(flash_dq_256, FlashArgs, 2)
GPU_KERNEL_PAIRED(flash_dkv_64, FlashArgs, 4)
GPU_KERNEL_WARPS(flash_dkv_128, FlashArgs, 4)
GPU_KERNEL_WARPS(flash_dk_256, FlashArgs, 2)
GPU_KERNEL_WARPS(flash_dv_256, FlashArgs, 2)

#if GPU_KERNEL_PASS
namespace ingot::gpu::GPU_TARGET {
namespace {

constexpr bool wide = sizeof(MmaA) == 32;

// The tokens that a block processes. Sequence s owns the blocks from offsets[s] / rows + s up to those of s + 1, which
// are at least as many as it needs.
struct Place {
  int64_t start;  // first token of the sequence in the pack
  int length;     // of the sequence
  int first;      // first token of the block in the sequence; from `length` on the block has nothing to do
};
GPU_FN Place place_of(const PackedAttentionArgs& a, int rows, int block) {
  int low = 0;
  int high = a.sequences - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (a.offsets[middle] / rows + middle <= block) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  const int start = a.offsets[low];
  return {start, a.offsets[low + 1] - start, (block - (start / rows + low)) * rows};
}
// Later queries attend to more keys, so their blocks start first.
GPU_FN int longest_first() { return grid_blocks() - 1 - block_index(); }

// The rows of one head of a sequence.
template <class T>
struct HeadRows {
  int64_t start, stride;
  int end, d;
  GPU_FN Source<T> source(const void* matrix) const { return {static_cast<const T*>(matrix) + start, stride, end, d}; }
  GPU_FN T* row(void* matrix, int row) const { return static_cast<T*>(matrix) + start + row * stride; }
};
template <class T>
GPU_FN HeadRows<T> head_rows(const PackedAttentionArgs& a, const Place& place, int heads, int head) {
  const int64_t stride = static_cast<int64_t>(heads) * a.d;
  return {place.start * stride + static_cast<int64_t>(head) * a.d, stride, place.length, a.d};
}

// Double buffering: two stages of two tiles of `inner` rows; one stage is multiplied while the other one is loaded.
template <class T, int D, int inner, int threads>
struct Stages {
  T* room;
  TileCopy<T, inner, D, threads> left_copy, right_copy;

  GPU_FN Tile<T, D> left(int stage) const { return {room + stage * 2 * inner * D}; }
  GPU_FN Tile<T, D> right(int stage) const { return {room + (stage * 2 + 1) * inner * D}; }
  GPU_FN void begin(int stage, const Source<T>& from_left, const Source<T>& from_right, int first) {
    left_copy.begin(left(stage), from_left, first);
    right_copy.begin(right(stage), from_right, first);
  }
  // On return the stage is complete, and no thread reads the other one any more.
  GPU_FN void end() {
    left_copy.copies.end();
    right_copy.copies.end();
    block_barrier();
  }
};

// Loads the block's own rows through `room` (the block's rows of D elements); returns those of the warp.
template <int D, int tiles, int warps, bool in_registers, class T>
GPU_FN Rows<T, D, tiles, in_registers> load_own_rows(T* room, const Source<T>& from, int first) {
  TileCopy<T, 16 * tiles * warps, D, warps * warp_width> copy = {};
  copy.begin({room}, from, first);
  copy.copies.end();
  block_barrier();
  const Rows<T, D, tiles, in_registers> rows(Tile<T, D>{room}.from_row(warp_index() * tiles * 16));
  if constexpr (in_registers) block_barrier();  // `room` may be reused
  return rows;
}
// True if the operands of `matrices` matrices take at most `most` 4-byte registers of a lane, and so stay there.
template <int D, int tiles, int matrices, int most>
constexpr bool keeps = static_cast<int>(sizeof(MmaA)) / 4 * (D / mma_k) * tiles * matrices <= most;

template <class T>
GPU_FN MmaA operand_of(const MmaAccumulator* sums) {
  MmaAccumulator part[operand_tiles];
  GPU_UNROLL
  for (int j = 0; j < operand_tiles; ++j) part[j] = sums[j];
  return mma_operand<T>(part);
}

// The online softmax of 16 queries over the keys so far.
struct Softmax {
  float top[mma_lane_rows];    // running maximum of the scores (as Exponents has them)
  float total[mma_lane_rows];  // the lane's part of the sum of weights relative to it
  GPU_FN Softmax() {
    GPU_UNROLL
    for (int m = 0; m < mma_lane_rows; ++m) {
      top[m] = -infinity();
      total[m] = 0;
    }
  }

  // Replaces scores by weights. The caller must multiply what it has summed so far by `share`.
  template <int count>
  GPU_FN void add(MmaAccumulator (&scores)[count], float factor, float (&share)[mma_lane_rows]) {
    float base[mma_lane_rows];
    GPU_UNROLL
    for (int m = 0; m < mma_lane_rows; ++m) {
      float most = top[m];
      GPU_UNROLL
      for (int n = 0; n < count; ++n) {
        GPU_UNROLL
        for (int i = 0; i < MmaAccumulator::count; ++i) {
          if (mma_lane_row(i) == m) most = scores[n].at[i] > most ? scores[n].at[i] : most;
        }
      }
      most = row_max(most);
      base[m] = most > -infinity() ? most * factor : 0.0F;  // no key so far: every weight is 0
      share[m] = exp2_approx(fma(top[m], factor, -base[m]));
      top[m] = most;
      total[m] *= share[m];
    }
    GPU_UNROLL
    for (int n = 0; n < count; ++n) {
      GPU_UNROLL
      for (int i = 0; i < MmaAccumulator::count; ++i) {
        const int m = mma_lane_row(i);
        scores[n].at[i] = exp2_approx(fma(scores[n].at[i], factor, -base[m]));
        total[m] += scores[n].at[i];
      }
    }
  }
};

template <class T, int D>
GPU_FN void forward(const PackedAttentionArgs& a) {
  constexpr FlashShape shape = forward_shape(D, warp_width, wide);
  constexpr int tiles = shape.tiles;
  constexpr int block_rows = shape.rows();
  constexpr int keys = shape.inner;
  constexpr bool in_registers = warp_width == 64 || keeps<D, tiles, 1, 32>;
  const Place place = place_of(a, block_rows, longest_first());
  if (place.first >= place.length) return;
  const int head = block_index_y();
  const HeadRows<T> q_rows = head_rows<T>(a, place, a.heads, head);
  const HeadRows<T> kv_rows = head_rows<T>(a, place, a.kv_heads, head / (a.heads / a.kv_heads));
  const Source<T> k = kv_rows.source(a.k);
  const Source<T> v = kv_rows.source(a.v);

  Stages<T, D, keys, shape.warps * warp_width> stages{dynamic_shared<T>(), {}, {}};
  const auto q = load_own_rows<D, tiles, shape.warps, in_registers>(
      dynamic_shared<T>() + (in_registers ? 0 : 4 * keys * D), q_rows.source(a.q), place.first);
  MmaAccumulator out[tiles][D / 16] = {};
  Softmax softmax[tiles];

  const Exponents exponents(a.score);
  const float slope = slope_of(a.score, head);
  const int window = window_of(a.score);
  const int first = place.first + warp_index() * tiles * 16;  // first query of the warp
  const int last_key = (place.first + block_rows < place.length ? place.first + block_rows : place.length) - 1;
  int k0 = static_cast<int>(first_key(a.score, place.first)) / keys * keys;
  stages.begin(0, k, v, k0);
  for (int stage = 0; k0 <= last_key; k0 += keys, stage ^= 1) {
    stages.end();
    if (k0 + keys <= last_key) stages.begin(stage ^ 1, k, v, k0 + keys);
    if (none_sees(first, first + tiles * 16 - 1, k0, k0 + keys - 1, window)) continue;
    const bool whole = all_see(first, first + tiles * 16 - 1, k0, k0 + keys - 1, window);
    MmaAccumulator scores[tiles][keys / 16] = {};
    multiply(scores, q, stages.left(stage), 0);
    bool changed = false;
    float share[tiles][mma_lane_rows];
    GPU_UNROLL
    for (int r = 0; r < tiles; ++r) {
      if (!exponents.plain) {
        GPU_UNROLL
        for (int n = 0; n < keys / 16; ++n) {
          GPU_UNROLL
          for (int i = 0; i < MmaAccumulator::count; ++i) {
            const int distance = k0 + n * 16 + mma_column(i) - (first + r * 16 + mma_row(i));
            scores[r][n].at[i] = exponents.bent(scores[r][n].at[i], slope, distance).value;
          }
        }
      }
      if (!whole) {
        GPU_UNROLL
        for (int n = 0; n < keys / 16; ++n) {
          GPU_UNROLL
          for (int i = 0; i < MmaAccumulator::count; ++i) {
            if (!sees(first + r * 16 + mma_row(i), k0 + n * 16 + mma_column(i), window)) {
              scores[r][n].at[i] = -infinity();
            }
          }
        }
      }
      softmax[r].add(scores[r], exponents.factor, share[r]);
      GPU_UNROLL
      for (int m = 0; m < mma_lane_rows; ++m) changed = changed || share[r][m] != 1.0F;
    }
    if (warp_ballot(changed) != 0) {
      GPU_UNROLL
      for (int r = 0; r < tiles; ++r) {
        GPU_UNROLL
        for (int n = 0; n < D / 16; ++n) {
          GPU_UNROLL
          for (int i = 0; i < MmaAccumulator::count; ++i) out[r][n].at[i] *= share[r][mma_lane_row(i)];
        }
      }
    }
    GPU_UNROLL
    for (int j = 0; j < keys / mma_k; ++j) {
      MmaA weights[tiles];
      GPU_UNROLL
      for (int r = 0; r < tiles; ++r) weights[r] = operand_of<T>(scores[r] + j * operand_tiles);
      multiply_transposed<T, D>(out, weights, stages.right(stage), j * mma_k);
    }
  }
  GPU_UNROLL
  for (int r = 0; r < tiles; ++r) {
    const int row = first + r * 16;
    float factors[mma_lane_rows];
    GPU_UNROLL
    for (int m = 0; m < mma_lane_rows; ++m) {
      softmax[r].total[m] = row_sum(softmax[r].total[m]);
      factors[m] = 1.0F / softmax[r].total[m];
    }
    put_rows(q_rows.row(a.out, row), q_rows.stride, place.length - row, a.d, out[r], factors);
    if (a.lse == nullptr) continue;
    GPU_UNROLL
    for (int i = 0; i < MmaAccumulator::count; ++i) {
      if (mma_column(i) == 0 && row + mma_row(i) < place.length) {
        const int m = mma_lane_row(i);
        a.lse[head * a.tokens + place.start + row + mma_row(i)] =
            fma(softmax[r].top[m] * exponents.factor, ln_2, logarithm(softmax[r].total[m]));
      }
    }
  }
}

// Each query and head gets 8, 16 or 32 adjacent lanes: the packs of 8 elements of a head, rounded up to a power of two.
GPU_FN void dots(const FlashArgs& args) {
  const PackedAttentionArgs& a = args.packed;
  const int lanes = a.d <= 64 ? 8 : a.d <= 128 ? 16 : 32;
  const int64_t row = (static_cast<int64_t>(block_index()) * 128 + thread_index()) / lanes;
  const int column = thread_index() % lanes * 8;
  const int head = block_index_y();
  float sum = 0;
  if (row < a.tokens && column < a.d) {
    const int64_t at = (row * a.heads + head) * a.d + column;
    const auto out = load_floats<8>(static_cast<const Bf16*>(a.out) + at);
    const auto dout = load_floats<8>(static_cast<const Bf16*>(a.dout) + at);
    for (int i = 0; i < 8; ++i) sum = fma(out.at[i], dout.at[i], sum);
  }
  for (int mask = 1; mask < lanes; mask *= 2) sum += shuffle_xor(sum, mask);
  if (column == 0 && row < a.tokens) args.delta[head * a.tokens + row] = sum;
}

// For <q, k> and <dout, v> of a query and key: the attention weight, and the gradient with respect to scale <q, k>.
struct Gradient {
  float weight, slope;
};
// lse: the base-2 logarithm of the sum of exponentials.
template <bool plain>
GPU_FN Gradient gradient_of(const Exponents& exponents, float product, float of_value, float lse, float delta,
                            float slope, int distance) {
  Exponents::Bent score{product, 1.0F};
  if constexpr (!plain) score = exponents.bent(product, slope, distance);
  const float weight = exp2_approx(fma(score.value, exponents.factor, -lse));
  return {weight, plain ? weight * (of_value - delta) : weight * (of_value - delta) * score.bend};
}
// Calls each<true>() for plain exponents, else each<false>().
template <class Each>
GPU_FN void by_kind(const Exponents& exponents, Each each) {
  if (exponents.plain) {
    each.template operator()<true>();
  } else {
    each.template operator()<false>();
  }
}

template <int D>
GPU_FN void query_gradient(const FlashArgs& args) {
  constexpr FlashShape shape = dq_shape(D, warp_width, wide);
  constexpr int tiles = shape.tiles;
  constexpr int block_rows = shape.rows();
  constexpr int keys = shape.inner;
  constexpr bool in_registers = warp_width == 64 || keeps<D, tiles, 2, 64>;
  const PackedAttentionArgs& a = args.packed;
  const Place place = place_of(a, block_rows, longest_first());
  if (place.first >= place.length) return;
  const int head = block_index_y();
  const HeadRows<Bf16> q_rows = head_rows<Bf16>(a, place, a.heads, head);
  const HeadRows<Bf16> kv_rows = head_rows<Bf16>(a, place, a.kv_heads, head / (a.heads / a.kv_heads));
  const Source<Bf16> k = kv_rows.source(a.k);
  const Source<Bf16> v = kv_rows.source(a.v);

  Stages<Bf16, D, keys, shape.warps * warp_width> stages{dynamic_shared<Bf16>(), {}, {}};
  Bf16* const kept = dynamic_shared<Bf16>() + (in_registers ? 0 : 4 * keys * D);
  const auto q = load_own_rows<D, tiles, shape.warps, in_registers>(kept, q_rows.source(a.q), place.first);
  const auto dout = load_own_rows<D, tiles, shape.warps, in_registers>(kept + (in_registers ? 0 : block_rows * D),
                                                                       q_rows.source(a.dout), place.first);
  MmaAccumulator dq[tiles][D / 16] = {};

  const Exponents exponents(a.score);
  const float slope = slope_of(a.score, head);
  const int window = window_of(a.score);
  const int first = place.first + warp_index() * tiles * 16;
  const int last_key = (place.first + block_rows < place.length ? place.first + block_rows : place.length) - 1;
  float lse[tiles][mma_lane_rows];
  float delta[tiles][mma_lane_rows];
  GPU_UNROLL
  for (int r = 0; r < tiles; ++r) {
    GPU_UNROLL
    for (int i = 0; i < MmaAccumulator::count; ++i) {
      const int row = first + r * 16 + mma_row(i);
      const int64_t at = head * a.tokens + place.start + (row < place.length ? row : 0);
      lse[r][mma_lane_row(i)] = a.lse[at] * log2_e;
      delta[r][mma_lane_row(i)] = args.delta[at];
    }
  }

  int k0 = static_cast<int>(first_key(a.score, place.first)) / keys * keys;
  stages.begin(0, k, v, k0);
  for (int stage = 0; k0 <= last_key; k0 += keys, stage ^= 1) {
    stages.end();
    if (k0 + keys <= last_key) stages.begin(stage ^ 1, k, v, k0 + keys);
    GPU_UNROLL
    for (int j = 0; j < keys; j += mma_k) {
      if (none_sees(first, first + tiles * 16 - 1, k0 + j, k0 + j + mma_k - 1, window)) continue;
      const bool whole = all_see(first, first + tiles * 16 - 1, k0 + j, k0 + j + mma_k - 1, window);
      MmaAccumulator products[tiles][operand_tiles] = {};
      MmaAccumulator of_values[tiles][operand_tiles] = {};
      multiply(products, q, stages.left(stage), j);
      multiply(of_values, dout, stages.right(stage), j);
      by_kind(exponents, [&]<bool plain>() {
        GPU_UNROLL
        for (int r = 0; r < tiles; ++r) {
          GPU_UNROLL
          for (int n = 0; n < operand_tiles; ++n) {
            GPU_UNROLL
            for (int i = 0; i < MmaAccumulator::count; ++i) {
              const int query = first + r * 16 + mma_row(i);
              const int key = k0 + j + n * 16 + mma_column(i);
              const float slope_here =
                  gradient_of<plain>(exponents, products[r][n].at[i], of_values[r][n].at[i], lse[r][mma_lane_row(i)],
                                     delta[r][mma_lane_row(i)], slope, key - query)
                      .slope;
              products[r][n].at[i] = whole || sees(query, key, window) ? slope_here : 0.0F;
            }
          }
        }
      });
      MmaA slopes[tiles];
      GPU_UNROLL
      for (int r = 0; r < tiles; ++r) slopes[r] = operand_of<Bf16>(products[r]);
      multiply_transposed<Bf16, D>(dq, slopes, stages.left(stage), j);
    }
  }
  float factors[mma_lane_rows];
  for (float& each : factors) each = a.score.scale;
  GPU_UNROLL
  for (int r = 0; r < tiles; ++r) {
    const int row = first + r * 16;
    put_rows(q_rows.row(a.dq, row), q_rows.stride, place.length - row, a.d, dq[r], factors);
  }
}

// dk, dv or both: with the longest heads the sums of one of them fill a lane's registers.
template <int D, bool of_keys, bool of_values>
GPU_FN void key_gradient(const FlashArgs& args) {
  constexpr FlashShape shape = dkv_shape(D, warp_width, wide);
  constexpr int tiles = shape.tiles;
  constexpr int block_rows = shape.rows();
  constexpr int queries = shape.inner;
  constexpr bool in_registers = warp_width == 64 || keeps<D, tiles, 2, 32>;
  const PackedAttentionArgs& a = args.packed;
  const Place place = place_of(a, block_rows, block_index());
  if (place.first >= place.length) return;
  const int kv_head = block_index_y();
  const int group = a.heads / a.kv_heads;
  const HeadRows<Bf16> kv_rows = head_rows<Bf16>(a, place, a.kv_heads, kv_head);

  Stages<Bf16, D, queries, shape.warps * warp_width> stages{dynamic_shared<Bf16>(), {}, {}};
  Bf16* const kept = dynamic_shared<Bf16>() + (in_registers ? 0 : 4 * queries * D);
  const auto k = load_own_rows<D, tiles, shape.warps, in_registers>(kept, kv_rows.source(a.k), place.first);
  const auto v = load_own_rows<D, tiles, shape.warps, in_registers>(kept + (in_registers ? 0 : block_rows * D),
                                                                    kv_rows.source(a.v), place.first);
  MmaAccumulator dk[tiles][D / 16] = {};
  MmaAccumulator dv[tiles][D / 16] = {};

  const Exponents exponents(a.score);
  const int window = window_of(a.score);
  const int first = place.first + warp_index() * tiles * 16;  // first key of the warp
  int end = place.length;                                     // of the queries that attend to any of the block's keys
  if (window > 0 && place.first + block_rows - 1 + window < end) end = place.first + block_rows - 1 + window;
  // Loops over the query heads of the group, and for each over its queries. The first tile of queries starts at
  // place.first, a multiple of `queries`, because no earlier query attends to the keys.
  int head = kv_head * group;
  const int last_head = head + group - 1;
  int q0 = place.first;
  const auto begin = [&](int stage, int of_head, int at) {
    const HeadRows<Bf16> rows = head_rows<Bf16>(a, place, a.heads, of_head);
    stages.begin(stage, rows.source(a.q), rows.source(a.dout), at);
  };
  begin(0, head, q0);
  for (int stage = 0; head <= last_head; stage ^= 1) {
    stages.end();
    const bool next_head = q0 + queries >= end;
    const int head_after = next_head ? head + 1 : head;
    const int q0_after = next_head ? place.first : q0 + queries;
    if (head_after <= last_head) begin(stage ^ 1, head_after, q0_after);
    const float slope = slope_of(a.score, head);
    const float* const lse_of = a.lse + head * a.tokens + place.start;
    const float* const delta_of = args.delta + head * a.tokens + place.start;
    GPU_UNROLL
    for (int j = 0; j < queries; j += mma_k) {
      const int query0 = q0 + j;
      if (none_sees(query0, query0 + mma_k - 1, first, first + tiles * 16 - 1, window)) continue;
      const bool whole = all_see(query0, query0 + mma_k - 1, first, first + tiles * 16 - 1, window);
      float lse[operand_tiles][MmaAccumulator::count];
      float delta[operand_tiles][MmaAccumulator::count];
      GPU_UNROLL
      for (int n = 0; n < operand_tiles; ++n) {
        GPU_UNROLL
        for (int i = 0; i < MmaAccumulator::count; ++i) {
          const int query = query0 + n * 16 + mma_column(i);
          lse[n][i] = query < place.length ? lse_of[query] : infinity();  // makes its weights 0
          delta[n][i] = query < place.length ? delta_of[query] : 0.0F;
        }
      }
      MmaAccumulator products[tiles][operand_tiles] = {};
      MmaAccumulator of_value[tiles][operand_tiles] = {};
      multiply(products, k, stages.left(stage), j);
      if constexpr (of_keys) multiply(of_value, v, stages.right(stage), j);
      by_kind(exponents, [&]<bool plain>() {
        GPU_UNROLL
        for (int r = 0; r < tiles; ++r) {
          GPU_UNROLL
          for (int n = 0; n < operand_tiles; ++n) {
            GPU_UNROLL
            for (int i = 0; i < MmaAccumulator::count; ++i) {
              const int key = first + r * 16 + mma_row(i);
              const int query = query0 + n * 16 + mma_column(i);
              const Gradient gradient = gradient_of<plain>(exponents, products[r][n].at[i], of_value[r][n].at[i],
                                                           lse[n][i] * log2_e, delta[n][i], slope, key - query);
              const bool seen = whole || sees(query, key, window);
              products[r][n].at[i] = seen ? gradient.weight : 0.0F;
              of_value[r][n].at[i] = seen ? gradient.slope : 0.0F;
            }
          }
        }
      });
      MmaA weights[tiles];
      MmaA slopes[tiles];
      GPU_UNROLL
      for (int r = 0; r < tiles; ++r) {
        weights[r] = operand_of<Bf16>(products[r]);
        slopes[r] = operand_of<Bf16>(of_value[r]);
      }
      if constexpr (of_values) multiply_transposed<Bf16, D>(dv, weights, stages.right(stage), j);
      if constexpr (of_keys) multiply_transposed<Bf16, D>(dk, slopes, stages.left(stage), j);
    }
    head = head_after;
    q0 = q0_after;
  }
  float scales[mma_lane_rows];
  float ones[mma_lane_rows];
  for (float& each : scales) each = a.score.scale;
  for (float& each : ones) each = 1.0F;
  GPU_UNROLL
  for (int r = 0; r < tiles; ++r) {
    const int row = first + r * 16;
    const int left = place.length - row;
    if constexpr (of_keys) put_rows(kv_rows.row(a.dk, row), kv_rows.stride, left, a.d, dk[r], scales);
    if constexpr (of_values) put_rows(kv_rows.row(a.dv, row), kv_rows.stride, left, a.d, dv[r], ones);
  }
}

}  // namespace

GPU_KERNEL_BODY(flash_64, PackedAttentionArgs) { forward<Bf16, 64>(a); }
GPU_KERNEL_BODY(flash_128, PackedAttentionArgs) { forward<Bf16, 128>(a); }
GPU_KERNEL_BODY(flash_256, PackedAttentionArgs) { forward<Bf16, 256>(a); }
GPU_KERNEL_BODY(flash_f16_64, PackedAttentionArgs) { forward<F16, 64>(a); }
GPU_KERNEL_BODY(flash_f16_128, PackedAttentionArgs) { forward<F16, 128>(a); }
GPU_KERNEL_BODY(flash_f16_256, PackedAttentionArgs) { forward<F16, 256>(a); }
GPU_KERNEL_BODY(flash_delta, FlashArgs) { dots(a); }
GPU_KERNEL_BODY(flash_dq_64, FlashArgs) { query_gradient<64>(a); }
GPU_KERNEL_BODY(flash_dq_128, FlashArgs) { query_gradient<128>(a); }
GPU_KERNEL_BODY(flash_dq_256, FlashArgs) { query_gradient<256>(a); }
GPU_KERNEL_BODY(flash_dkv_64, FlashArgs) { key_gradient<64, true, true>(a); }
GPU_KERNEL_BODY(flash_dkv_128, FlashArgs) { key_gradient<128, true, true>(a); }
GPU_KERNEL_BODY(flash_dk_256, FlashArgs) { key_gradient<256, true, false>(a); }
GPU_KERNEL_BODY(flash_dv_256, FlashArgs) { key_gradient<256, false, true>(a); }

}  // namespace ingot::gpu::GPU_TARGET

#else

#include "backend/gpu/launch.h"
#include "backend/gpu/ops.h"
#include "ops/attention_bytes.h"

namespace ingot::gpu {
namespace {

using ops::Context;

bool is_wide(const Context& context) { return device_of(context).arch().starts_with("gfx11"); }

int padded_d(int64_t d) { return d <= 64 ? 64 : d <= 128 ? 128 : 256; }

Grid grid_of(const PackedAttentionArgs& args, const FlashShape& shape, int64_t heads) {
  return {args.sequences > 0 ? args.tokens / shape.rows() + args.sequences : 0, heads};
}

void run_forward(Context& context, const Tensor& out, const Tensor& lse, const Tensor& q, const Tensor& k,
                 const Tensor& v, const Tensor& offsets, ops::AttentionAttributes attributes) {
  const PackedAttentionArgs args = packed_args(out, lse, q, k, v, offsets, attributes);
  const int lanes = device_of(context).warp_width();
  const int d = padded_d(attributes.head_dim);
  const FlashShape shape = forward_shape(d, lanes, is_wide(context));
  const bool half = q.dtype == DType::f16;
  launch(context,
         d == 64    ? (half ? flash_f16_64 : flash_64)
         : d == 128 ? (half ? flash_f16_128 : flash_128)
                    : (half ? flash_f16_256 : flash_256),
         grid_of(args, shape, attributes.heads), args, shape.shared_bytes(d, lanes, 1));
}
bool decline_forward(const Context&, const Tensor& out, const Tensor&, const Tensor& q, const Tensor& k,
                     const Tensor& v, const Tensor&, ops::AttentionAttributes attributes, ops::Refusal refuse) {
  return decline_tiles(attributes, {q, k, v, out}, refuse);
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
  const int lanes = device_of(context).warp_width();
  const int d = padded_d(attributes.head_dim);
  launch(context, flash_delta, {blocks_of(args.packed.tokens, 128 / (d / 8)), attributes.heads}, args);
  const FlashShape q_shape = dq_shape(d, lanes, is_wide(context));
  launch(context,
         d == 64    ? flash_dq_64
         : d == 128 ? flash_dq_128
                    : flash_dq_256,
         grid_of(args.packed, q_shape, attributes.heads), args, q_shape.shared_bytes(d, lanes, 2));
  const FlashShape kv_shape = dkv_shape(d, lanes, is_wide(context));
  const auto launch_kv = [&](const Kernel<FlashArgs>& kernel) {
    launch(context, kernel, grid_of(args.packed, kv_shape, attributes.kv_heads), args,
           kv_shape.shared_bytes(d, lanes, 2));
  };
  if (d == 256) {
    launch_kv(flash_dk_256);
    launch_kv(flash_dv_256);
  } else {
    launch_kv(d == 64 ? flash_dkv_64 : flash_dkv_128);
  }
}
bool decline_backward(const Context&, const Tensor& dq, const Tensor& dk, const Tensor& dv, const Tensor& dout,
                      const ops::AttentionSaved& saved, const Tensor&, ops::AttentionAttributes attributes,
                      ops::Refusal refuse) {
  return decline_tiles(attributes, {dq, dk, dv, dout, saved.out, saved.q, saved.k, saved.v}, refuse);
}

}  // namespace

void register_attention_mma(ops::Registry& registry, DeviceKind kind) {
  registry.add<ops::Attention>(kind, "mma", run_forward, decline_forward);
  registry.add<ops::AttentionBackward>(kind, "mma", run_backward, decline_backward);
}

}  // namespace ingot::gpu
#endif
