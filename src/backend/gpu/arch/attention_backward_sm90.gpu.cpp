// The backward pass of flash attention on Hopper's warpgroup products (compute capability 9.0 only), for bf16 and heads
// of up to 128 elements. attention_mma_backward.gpu.cpp has the kernels for everything else, and this one's reference
// in tests; what is computed, and for which tokens, is as there.
//
// Two warpgroups have 64 keys each (64 queries, in the gradient of queries) and loop over tiles of queries (keys).
// Scores and dP are products of matrices in shared memory. The warps' rows of them are keys (queries), so that weights
// and dS, rounded, are operands of the next products in registers. While dP is computed, scores become weights; while
// the product of weights and dout is (or that of the first half of dS), dS does. The tiles have two stages each, loaded
// with cp.async: one barrier of the block for each tile. bench/reports/2026-11-28-attention-sm90.md counts instructions
// and shared-memory cycles.
#include "backend/gpu/arch/attention_sm90.h"
#include "backend/gpu/attention/flash_backward.h"

namespace ingot::gpu {

GPU_FN constexpr FlashShape sm90_dq_shape() { return {8, 1, 128}; }
GPU_FN constexpr FlashShape sm90_dkv_shape() { return {8, 1, 64}; }

}  // namespace ingot::gpu

// The suffix is the max head dimension. Empty where the target has no warpgroup products.
GPU_KERNEL_WARPS(flash_sm90_dq_64, FlashArgs, 8)
GPU_KERNEL_WARPS(flash_sm90_dq_128, FlashArgs, 8)
GPU_KERNEL_WARPS(flash_sm90_dkv_64, FlashArgs, 8)
GPU_KERNEL_WARPS(flash_sm90_dkv_128, FlashArgs, 8)

#if GPU_KERNEL_PASS
namespace ingot::gpu::GPU_TARGET {
namespace {

// Sets those sums to 0 for whose row and column `keep` is false.
template <class Keep>
GPU_FN void clear_unless(MmaAccumulator& sums, Keep keep) {
  GPU_UNROLL
  for (int i = 0; i < MmaAccumulator::count; ++i) {
    if (!keep(mma_row(i), mma_column(i))) sums.at[i] = 0.0F;
  }
}

// values[i] = from[mma_column(i)].
[[maybe_unused]] GPU_FN void load_by_column(float (&values)[MmaAccumulator::count], const float* from) {
  GPU_UNROLL
  for (int i = 0; i < MmaAccumulator::count; i += mma_neighbours) {
    const auto pack = load_pack<float, mma_neighbours>(from + mma_column(i));
    GPU_UNROLL
    for (int j = 0; j < mma_neighbours; ++j) values[i + j] = pack.at[j];
  }
}

template <int D>
GPU_FN void query_gradient(const FlashArgs& args) {
  constexpr int block_rows = sm90_dq_shape().rows();
  constexpr int keys = sm90_dq_shape().inner;
  constexpr int threads = sm90_dq_shape().warps * warp_width;
  using KeyTile = SwizzledTile<keys, D>;
  const PackedAttentionArgs& a = args.packed;
  const BlockTokens tokens = query_block(a, block_rows);
  if (!tokens.has_query(block_rows)) return;
  const int head = block_index_y();
  const HeadRows<Bf16> q_rows = query_rows<Bf16>(a, tokens, head);
  const int end = tokens.end_of_keys(block_rows);
  const HeadRows<Bf16> kv_rows = key_rows<Bf16>(a, tokens, end, head / (a.heads / a.kv_heads));
  const Source<Bf16> k = kv_rows.source(a.k);
  const Source<Bf16> v = kv_rows.source(a.v);

  Bf16* const shared = swizzled_shared<Bf16>();
  const SwizzledTile<block_rows, D> q_tile{shared}, dout_tile{shared + block_rows * D};
  const auto k_tile = [&](int stage) { return KeyTile{shared + 2 * (block_rows + stage * keys) * D}; };
  const auto v_tile = [&](int stage) { return KeyTile{shared + (2 * (block_rows + stage * keys) + keys) * D}; };
  TileCopy<Bf16, block_rows, D, threads> q_copy = {}, dout_copy = {};
  TileCopy<Bf16, keys, D, threads> k_copy = {}, v_copy = {};
  const auto begin = [&](int stage, int key) {
    k_copy.begin(k_tile(stage), k, key);
    v_copy.begin(v_tile(stage), v, key);
  };
  int k0 = static_cast<int>(first_key(a.score, tokens.first)) / keys * keys;
  q_copy.begin(q_tile, q_rows.source(a.q), tokens.first - tokens.first_query);
  dout_copy.begin(dout_tile, q_rows.source(a.dout), tokens.first - tokens.first_query);
  if (k0 < end) begin(0, k0);
  q_copy.copies.wait();
  dout_copy.copies.wait();

  const Exponents exponents(a.score);
  const float slope = alibi_slope(a.score, head);
  const int window = window_of(a.score);
  const int first = tokens.first + warp_index() * 16;  // first query of the warp
  const int group_row = warp_index() / 4 * warpgroup_rows;
  float lse[mma_lane_rows];
  float delta[mma_lane_rows];
  GPU_UNROLL
  for (int i = 0; i < MmaAccumulator::count; ++i) {
    const int row = first - tokens.first_query + mma_row(i);
    const int64_t at = head * a.queries + tokens.query_row + (is_row(row, tokens.queries) ? row : 0);
    lse[mma_lane_row(i)] = a.lse[at] * log2_e;
    delta[mma_lane_row(i)] = args.delta[at];
  }

  MmaAccumulator dq[D / 16] = {};
  MmaAccumulator scores[keys / 16] = {};  // weights, then dS
  MmaAccumulator dweights[keys / 16] = {};
  MmaA dscores[2][keys / mma_k / 2];  // of the tile's halves
  GPU_ROLLED
  for (int stage = 0; k0 < end; k0 += keys, stage ^= 1) {
    k_copy.copies.wait();
    v_copy.copies.wait();
    pass_copies_on();
    if (k0 + keys < end) begin(stage ^ 1, k0 + keys);
    warpgroup_fence(scores, dweights);
    warpgroup_multiply_nt(scores, q_tile, group_row, k_tile(stage));
    warpgroup_multiply_nt(dweights, dout_tile, group_row, v_tile(stage));
    warpgroup_wait<1>(scores);
    if (exponents.plain) {
      GPU_UNROLL
      for (int n = 0; n < keys / 16; ++n) {
        GPU_UNROLL
        for (int i = 0; i < MmaAccumulator::count; ++i) {
          scores[n].at[i] = exp2_approx(fma(scores[n].at[i], exponents.factor, -lse[mma_lane_row(i)]));
        }
      }
    }
    warpgroup_wait<0>(dweights);
    const bool unmasked = k0 + keys <= end && all_attend(first, first + 15, k0, k0 + keys - 1, window);
    GPU_UNROLL
    for (int half = 0; half < 2; ++half) {
      with_plain(exponents, [&]<bool plain>() {
        GPU_UNROLL
        for (int t = 0; t < keys / 32; ++t) {
          MmaAccumulator& part = scores[half * keys / 32 + t];
          const MmaAccumulator& dweight = dweights[half * keys / 32 + t];
          const int key = k0 + half * keys / 2 + t * 16;
          GPU_UNROLL
          for (int i = 0; i < MmaAccumulator::count; ++i) {
            const int m = mma_lane_row(i);
            if constexpr (plain) {
              part.at[i] *= dweight.at[i] - delta[m];
            } else {
              const int distance = key + mma_column(i) - (first + mma_row(i));
              part.at[i] =
                  gradient_of<false>(exponents, part.at[i], dweight.at[i], lse[m], delta[m], slope, distance).dscore;
            }
          }
          if (!unmasked) {
            clear_unless(part, [&](int row, int column) {
              return key + column < end && attends(first + row, key + column, window);
            });
          }
          dscores[half][t] = operand_of<Bf16>(&part);
        }
      });
      if (half == 0) {
        warpgroup_fence(dq, dscores[0]);
      } else {
        warpgroup_fence(dscores[1]);  // the first half's product may be in flight
      }
      warpgroup_multiply_nn(dq, dscores[half], k_tile(stage), half * keys / 2);
    }
    warpgroup_wait<0>(dq);
  }
  q_rows.store_gradient(a, a.dq, first - tokens.first_query, dq, a.score.scale);
}

template <int D>
GPU_FN void key_gradient(const FlashArgs& args) {
  constexpr int block_rows = sm90_dkv_shape().rows();
  constexpr int queries = sm90_dkv_shape().inner;
  constexpr int threads = sm90_dkv_shape().warps * warp_width;
  using QueryTile = SwizzledTile<queries, D>;
  const PackedAttentionArgs& a = args.packed;
  const BlockTokens tokens = key_block(a, block_rows);
  if (tokens.first >= tokens.keys) return;
  const int kv_head = block_index_y();
  const int group = a.heads / a.kv_heads;
  const HeadRows<Bf16> kv_rows = key_rows<Bf16>(a, tokens, tokens.keys, kv_head);

  // Behind the tiles, for each stage: of its queries, the base-2 logarithms of the sums of exponentials, then delta.
  Bf16* const shared = swizzled_shared<Bf16>();
  const SwizzledTile<block_rows, D> k_tile{shared}, v_tile{shared + block_rows * D};
  const auto q_tile = [&](int stage) { return QueryTile{shared + 2 * (block_rows + stage * queries) * D}; };
  const auto dout_tile = [&](int stage) {
    return QueryTile{shared + (2 * (block_rows + stage * queries) + queries) * D};
  };
  float* const statistics = reinterpret_cast<float*>(shared + (2 * block_rows + 4 * queries) * D);
  TileCopy<Bf16, block_rows, D, threads> k_copy = {}, v_copy = {};
  TileCopy<Bf16, queries, D, threads> q_copy = {}, dout_copy = {};

  const Exponents exponents(a.score);
  const int window = window_of(a.score);
  const int first = tokens.first + warp_index() * 16;  // first key of the warp
  const int group_row = warp_index() / 4 * warpgroup_rows;
  // The queries that attend to any of the block's keys. None before tokens.first does.
  const int first_query = tokens.first > tokens.first_query ? tokens.first : tokens.first_query;
  int end = tokens.end_query();
  if (window > 0 && tokens.first + block_rows - 1 + window < end) end = tokens.first + block_rows - 1 + window;
  // Loops over the query heads of the group, and for each over its queries, if there are any.
  const int last_head = kv_head * group + group - 1;
  int head = first_query < end ? kv_head * group : last_head + 1;
  int q0 = first_query;
  const auto begin = [&](int stage, int of_head, int at) {
    const HeadRows<Bf16> rows = query_rows<Bf16>(a, tokens, of_head);
    q_copy.begin(q_tile(stage), rows.source(a.q), at - tokens.first_query);
    dout_copy.begin(dout_tile(stage), rows.source(a.dout), at - tokens.first_query);
  };
  // The thread's part of `statistics`. An lse of infinity makes the weights of a query that does not exist 0.
  const auto load_statistic = [&](int of_head, int at) {
    const bool is_lse = thread_index() < queries;
    const int row = at - tokens.first_query + thread_index() % queries;
    if (thread_index() >= 2 * queries || row >= tokens.queries) return is_lse ? infinity() : 0.0F;
    const int64_t index = of_head * a.queries + tokens.query_row + row;
    return is_lse ? a.lse[index] * log2_e : args.delta[index];
  };
  const auto store_statistic = [&](int stage, float value) {
    if (thread_index() < 2 * queries) statistics[stage * 2 * queries + thread_index()] = value;
  };

  MmaAccumulator dk[D / 16] = {};
  MmaAccumulator dv[D / 16] = {};
  MmaAccumulator scores[queries / 16] = {};  // of keys with queries; weights, if exponents are plain
  MmaAccumulator dweights[queries / 16] = {};
  MmaA weights[queries / mma_k], dscores[queries / mma_k];
  k_copy.begin(k_tile, kv_rows.source(a.k), tokens.first);
  v_copy.begin(v_tile, kv_rows.source(a.v), tokens.first);
  if (head <= last_head) {
    begin(0, head, q0);
    store_statistic(0, load_statistic(head, q0));
  }
  k_copy.copies.wait();
  v_copy.copies.wait();
  GPU_ROLLED
  for (int stage = 0; head <= last_head; stage ^= 1) {
    q_copy.copies.wait();
    dout_copy.copies.wait();
    pass_copies_on();
    const bool next_head = q0 + queries >= end;
    const int head_after = next_head ? head + 1 : head;
    const int q0_after = next_head ? first_query : q0 + queries;
    const bool has_next = head_after <= last_head;
    if (has_next) begin(stage ^ 1, head_after, q0_after);
    const float next_statistic = has_next ? load_statistic(head_after, q0_after) : 0.0F;
    warpgroup_fence(scores, dweights);
    warpgroup_multiply_nt(scores, k_tile, group_row, q_tile(stage));
    warpgroup_multiply_nt(dweights, v_tile, group_row, dout_tile(stage));

    const float* const all_lse = statistics + stage * 2 * queries;
    const float* const all_delta = all_lse + queries;
    const float slope = alibi_slope(a.score, head);
    const bool unmasked = all_attend(q0, q0 + queries - 1, first, first + 15, window);
    warpgroup_wait<1>(scores);
    with_plain(exponents, [&]<bool plain>() {
      GPU_UNROLL
      for (int n = 0; n < queries / 16; ++n) {
        MmaAccumulator part;
        float lse[MmaAccumulator::count];
        load_by_column(lse, all_lse + n * 16);
        GPU_UNROLL
        for (int i = 0; i < MmaAccumulator::count; ++i) {
          const int distance = first + mma_row(i) - (q0 + n * 16 + mma_column(i));
          part.at[i] = gradient_of<plain>(exponents, scores[n].at[i], 0.0F, lse[i], 0.0F, slope, distance).weight;
        }
        if (!unmasked) {
          clear_unless(part, [&](int row, int column) { return attends(q0 + n * 16 + column, first + row, window); });
        }
        weights[n] = operand_of<Bf16>(&part);
        if constexpr (plain) scores[n] = part;
      }
    });
    warpgroup_fence(dv, weights);
    warpgroup_multiply_nn(dv, weights, dout_tile(stage), 0);
    warpgroup_wait<1>(dweights);
    with_plain(exponents, [&]<bool plain>() {
      GPU_UNROLL
      for (int n = 0; n < queries / 16; ++n) {
        float lse[MmaAccumulator::count], delta[MmaAccumulator::count];
        if constexpr (!plain) load_by_column(lse, all_lse + n * 16);
        load_by_column(delta, all_delta + n * 16);
        GPU_UNROLL
        for (int i = 0; i < MmaAccumulator::count; ++i) {
          const float dweight = dweights[n].at[i];
          if constexpr (plain) {
            dweights[n].at[i] = scores[n].at[i] * (dweight - delta[i]);
          } else {
            const int distance = first + mma_row(i) - (q0 + n * 16 + mma_column(i));
            dweights[n].at[i] =
                gradient_of<false>(exponents, scores[n].at[i], dweight, lse[i], delta[i], slope, distance).dscore;
          }
        }
        if (!unmasked) {
          clear_unless(dweights[n],
                       [&](int row, int column) { return attends(q0 + n * 16 + column, first + row, window); });
        }
        dscores[n] = operand_of<Bf16>(dweights + n);
      }
    });
    warpgroup_fence(dk, dscores);
    warpgroup_multiply_nn(dk, dscores, q_tile(stage), 0);
    if (has_next) store_statistic(stage ^ 1, next_statistic);
    warpgroup_wait<0>(dk, dv);
    head = head_after;
    q0 = q0_after;
  }
  kv_rows.store_gradient(a, a.dk, first, dk, a.score.scale);
  kv_rows.store_gradient(a, a.dv, first, dv, 1.0F);
}

}  // namespace

GPU_KERNEL_BODY(flash_sm90_dq_64, FlashArgs) {
  if constexpr (has_warpgroups) query_gradient<64>(a);
}
GPU_KERNEL_BODY(flash_sm90_dq_128, FlashArgs) {
  if constexpr (has_warpgroups) query_gradient<128>(a);
}
GPU_KERNEL_BODY(flash_sm90_dkv_64, FlashArgs) {
  if constexpr (has_warpgroups) key_gradient<64>(a);
}
GPU_KERNEL_BODY(flash_sm90_dkv_128, FlashArgs) {
  if constexpr (has_warpgroups) key_gradient<128>(a);
}

}  // namespace ingot::gpu::GPU_TARGET

#else

namespace ingot::gpu {
namespace {

using ops::Context;

void run_backward(Context& context, const Tensor& dq, const Tensor& dk, const Tensor& dv, const Tensor& dout,
                  const ops::AttentionSaved& saved, const Tensor& offsets, ops::AttentionAttributes attributes) {
  constexpr size_t statistics = sizeof(float) * static_cast<size_t>(4 * sm90_dkv_shape().inner);
  const Arena::Scope scope(context.scratch);
  const FlashArgs args = launch_delta(context, dq, dk, dv, dout, saved, offsets, attributes);
  const int d = padded_d(attributes.head_dim);
  launch(context, d == 64 ? flash_sm90_dq_64 : flash_sm90_dq_128, query_grid(args.packed, sm90_dq_shape()), args,
         sm90_dq_shape().shared_bytes(d, 32, 2));
  launch(context, d == 64 ? flash_sm90_dkv_64 : flash_sm90_dkv_128, key_grid(args.packed, sm90_dkv_shape()), args,
         sm90_dkv_shape().shared_bytes(d, 32, 2) + statistics);
}
bool decline_backward(const Context& context, const Tensor& dq, const Tensor& dk, const Tensor& dv, const Tensor& dout,
                      const ops::AttentionSaved& saved, const Tensor&, ops::AttentionAttributes attributes,
                      ops::Refusal refuse) {
  return decline_warpgroups(context, attributes, {dout, dq, dk, dv, saved.out, saved.q, saved.k, saved.v}, refuse);
}

}  // namespace

void register_attention_backward_sm90(ops::Registry& registry, DeviceKind kind) {
  registry.add<ops::AttentionBackward>(kind, "sm90", run_backward, decline_backward);
}

}  // namespace ingot::gpu
#endif
