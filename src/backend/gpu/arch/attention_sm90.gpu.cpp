// The forward pass of flash attention on Hopper's warpgroup products (compute capability 9.0 only), for bf16 and heads
// of up to 128 elements. attention_mma.gpu.cpp is the kernel for everything else, and this one's reference in tests;
// what is computed, and for which tokens, is as there.
//
// Two warpgroups have 64 queries each. They loop over tiles of 128 keys: while the products with the values of one tile
// run, the scores of the next one become weights (Shah et al. 2024, arXiv 2407.08608, section 3.2, without its producer
// warps). Keys and values have two stages each, loaded with cp.async: one barrier of the block for each tile.
// bench/reports/2026-11-28-attention-sm90.md counts instructions and shared-memory cycles.
#include "backend/gpu/arch/attention_sm90.h"

#include "backend/gpu/attention/flash_forward.h"

namespace ingot::gpu {

GPU_FN constexpr FlashShape sm90_shape() { return {8, 1, 128}; }

}  // namespace ingot::gpu

// The suffix is the max head dimension. Empty where the target has no warpgroup products.
GPU_KERNEL_WARPS(flash_sm90_64, PackedAttentionArgs, 8)
GPU_KERNEL_WARPS(flash_sm90_128, PackedAttentionArgs, 8)

#if GPU_KERNEL_PASS
namespace ingot::gpu::GPU_TARGET {
namespace {

// Scores of the warp's 16 queries, from `query` on, with keys from `key` on become weights.
template <int count>
GPU_FN void weigh(MmaAccumulator (&scores)[count], const ScoreModifier& modifier, Softmax& softmax, int query, int key,
                  int end, float (&rescale)[mma_lane_rows]) {
  constexpr int keys = 16 * count;
  modifier.modify(scores, query, key);
  if (key + keys > end || !all_attend(query, query + 15, key, key + keys - 1, modifier.window)) {
    modifier.mask(scores, query, key, end);
  }
  softmax.add(scores, modifier.exponents.factor, rescale);
}

template <int count, int tiles>
GPU_FN void round_weights(MmaA (&weights)[tiles], const MmaAccumulator (&scores)[count]) {
  GPU_UNROLL
  for (int t = 0; t < tiles; ++t) weights[t] = operand_of<Bf16>(scores + t * operand_tiles);
}

template <int count>
GPU_FN void rescale_rows(MmaAccumulator (&out)[count], const float (&rescale)[mma_lane_rows]) {
  bool max_changed = false;
  GPU_UNROLL
  for (int m = 0; m < mma_lane_rows; ++m) max_changed = max_changed || rescale[m] != 1.0F;
  if (warp_ballot(max_changed) == 0) return;
  GPU_UNROLL
  for (int n = 0; n < count; ++n) {
    GPU_UNROLL
    for (int i = 0; i < MmaAccumulator::count; ++i) out[n].at[i] *= rescale[mma_lane_row(i)];
  }
}

template <int D>
GPU_FN void forward(const PackedAttentionArgs& a) {
  constexpr int block_rows = sm90_shape().rows();
  constexpr int keys = sm90_shape().inner;
  constexpr int threads = sm90_shape().warps * warp_width;
  using KeyTile = SwizzledTile<keys, D>;
  const BlockTokens tokens = query_block(a, block_rows);
  if (!tokens.has_query(block_rows)) return;
  const int head = block_index_y();
  const HeadRows<Bf16> q_rows = query_rows<Bf16>(a, tokens, head);
  const int end = tokens.end_of_keys(block_rows);
  const HeadRows<Bf16> kv_rows = key_rows<Bf16>(a, tokens, end, head / (a.heads / a.kv_heads));
  const Source<Bf16> k = kv_rows.source(a.k);
  const Source<Bf16> v = kv_rows.source(a.v);
  const int first_tile = static_cast<int>(first_key(a.score, tokens.first)) / keys;
  const int tiles = (end + keys - 1) / keys;

  Bf16* const shared = swizzled_shared<Bf16>();
  const SwizzledTile<block_rows, D> q_tile{shared};
  const auto k_tile = [&](int j) { return KeyTile{shared + (block_rows + j % 2 * keys) * D}; };
  const auto v_tile = [&](int j) { return KeyTile{shared + (block_rows + (2 + j % 2) * keys) * D}; };
  TileCopy<Bf16, block_rows, D, threads> q_copy = {};
  TileCopy<Bf16, keys, D, threads> k_copy = {}, v_copy = {};

  const ScoreModifier modifier(a.score, head);
  const int first = tokens.first + warp_index() * 16;  // first query of the warp
  const int group_row = warp_index() / 4 * warpgroup_rows;
  MmaAccumulator out[D / 16] = {};
  Softmax softmax;
  if (first_tile < tiles) {
    MmaAccumulator scores[keys / 16] = {};
    MmaA weights[keys / mma_k];
    float rescale[mma_lane_rows];

    q_copy.begin(q_tile, q_rows.source(a.q), tokens.first - tokens.first_query);
    k_copy.begin(k_tile(first_tile), k, first_tile * keys);
    q_copy.copies.wait();
    k_copy.copies.wait();
    pass_copies_on();
    warpgroup_fence(scores);
    warpgroup_multiply_nt(scores, q_tile, group_row, k_tile(first_tile));
    if (first_tile + 1 < tiles) k_copy.begin(k_tile(first_tile + 1), k, (first_tile + 1) * keys);
    v_copy.begin(v_tile(first_tile), v, first_tile * keys);
    warpgroup_wait<0>(scores);
    weigh(scores, modifier, softmax, first, first_tile * keys, end, rescale);
    round_weights(weights, scores);
    GPU_ROLLED
    for (int j = first_tile; j + 1 < tiles; ++j) {
      k_copy.copies.wait();
      v_copy.copies.wait();
      pass_copies_on();
      warpgroup_fence(scores, out, weights);
      warpgroup_multiply_nt(scores, q_tile, group_row, k_tile(j + 1));
      warpgroup_multiply_nn(out, weights, v_tile(j), 0);
      if (j + 2 < tiles) k_copy.begin(k_tile(j), k, (j + 2) * keys);
      v_copy.begin(v_tile(j + 1), v, (j + 1) * keys);
      warpgroup_wait<1>(scores);
      weigh(scores, modifier, softmax, first, (j + 1) * keys, end, rescale);
      warpgroup_wait<0>(out);
      rescale_rows(out, rescale);
      round_weights(weights, scores);
    }
    v_copy.copies.wait();
    pass_copies_on();
    warpgroup_fence(out, weights);
    warpgroup_multiply_nn(out, weights, v_tile(tiles - 1), 0);
    warpgroup_wait<0>(out);
  }
  store_attention(a, tokens, q_rows, head, first - tokens.first_query, softmax, modifier.exponents.factor, out);
}

}  // namespace

GPU_KERNEL_BODY(flash_sm90_64, PackedAttentionArgs) {
  if constexpr (has_warpgroups) forward<64>(a);
}
GPU_KERNEL_BODY(flash_sm90_128, PackedAttentionArgs) {
  if constexpr (has_warpgroups) forward<128>(a);
}

}  // namespace ingot::gpu::GPU_TARGET

#else

#include "backend/gpu/ops.h"

namespace ingot::gpu {
namespace {

using ops::Context;

void run_forward(Context& context, const Tensor& out, const Tensor& lse, const Tensor& q, const Tensor& k,
                 const Tensor& v, const Tensor& offsets, ops::AttentionAttributes attributes) {
  const PackedAttentionArgs args = packed_args(out, lse, q, k, v, offsets, attributes);
  const int d = padded_d(attributes.head_dim);
  launch(context, d == 64 ? flash_sm90_64 : flash_sm90_128, query_grid(args, sm90_shape()), args,
         sm90_shape().shared_bytes(d, 32, 1));
}

bool decline_forward(const Context& context, const Tensor& out, const Tensor&, const Tensor& q, const Tensor& k,
                     const Tensor& v, const Tensor&, ops::AttentionAttributes attributes, ops::Refusal refuse) {
  return decline_warpgroups(context, attributes, {q, k, v, out}, refuse);
}

}  // namespace

void register_attention_sm90(ops::Registry& registry, DeviceKind kind) {
  if (kind == DeviceKind::hip) return;
  registry.add<ops::Attention>(kind, "sm90", run_forward, decline_forward);
  register_attention_backward_sm90(registry, kind);
}

}  // namespace ingot::gpu
#endif
