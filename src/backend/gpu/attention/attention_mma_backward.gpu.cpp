// The backward pass of flash attention on tensor cores (flash.h): the gradients of queries, and of keys and values.
#include "backend/gpu/attention/flash_backward.h"

namespace ingot::gpu {

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

// delta = <dout, out>. Each query of a head has 8, 16 or 32 adjacent lanes, of which each loads 8 elements.
GPU_FN void compute_delta(const FlashArgs& args) {
  const PackedAttentionArgs& a = args.packed;
  const int lanes = a.d <= 64 ? 8 : a.d <= 128 ? 16 : 32;
  const int64_t row = (static_cast<int64_t>(block_index()) * 128 + thread_index()) / lanes;
  const int column = thread_index() % lanes * 8;
  const int head = block_index_y();
  float sum = 0;
  if (row < a.queries && column < a.d) {
    const int64_t at = (row * a.heads + head) * a.d + column;
    const auto out = load_floats<8>(static_cast<const Bf16*>(a.out) + at);
    const auto dout = load_floats<8>(static_cast<const Bf16*>(a.dout) + at);
    for (int i = 0; i < 8; ++i) sum = fma(out.at[i], dout.at[i], sum);
  }
  for (int mask = 1; mask < lanes; mask *= 2) sum += shuffle_xor(sum, mask);
  if (column == 0 && row < a.queries) args.delta[head * a.queries + row] = sum;
}

template <int D>
GPU_FN void query_gradient(const FlashArgs& args) {
  constexpr FlashShape shape = dq_shape(D, warp_width, wide);
  constexpr int tiles = shape.tiles;
  constexpr int block_rows = shape.rows();
  constexpr int keys = shape.inner;
  constexpr bool in_registers = warp_width == 64 || fit_in_registers<D, tiles, 2, 64>;
  constexpr bool rolled = wide && D == 256;  // dq takes half of a lane's registers
  const PackedAttentionArgs& a = args.packed;
  const BlockTokens tokens = query_block(a, block_rows);
  if (!tokens.has_query(block_rows)) return;
  const int head = block_index_y();
  const HeadRows<Bf16> q_rows = query_rows<Bf16>(a, tokens, head);
  const int end = tokens.end_of_keys(block_rows);
  const HeadRows<Bf16> kv_rows = key_rows<Bf16>(a, tokens, end, head / (a.heads / a.kv_heads));
  const Source<Bf16> k = kv_rows.source(a.k);
  const Source<Bf16> v = kv_rows.source(a.v);

  Stages<Bf16, D, keys, shape.warps * warp_width> stages{dynamic_shared<Bf16>(), {}, {}};
  Bf16* const resident = dynamic_shared<Bf16>() + (in_registers ? 0 : 4 * keys * D);
  const int first_row = tokens.first - tokens.first_query;  // of the block; may be negative
  const auto q = load_own_rows<D, tiles, shape.warps, in_registers>(resident, q_rows.source(a.q), first_row);
  const auto dout = load_own_rows<D, tiles, shape.warps, in_registers>(resident + (in_registers ? 0 : block_rows * D),
                                                                       q_rows.source(a.dout), first_row);
  MmaAccumulator dq[tiles][D / 16] = {};

  const Exponents exponents(a.score);
  const float slope = alibi_slope(a.score, head);
  const int window = window_of(a.score);
  const int first = tokens.first + warp_index() * tiles * 16;
  float lse[tiles][mma_lane_rows];
  float delta[tiles][mma_lane_rows];
  GPU_UNROLL
  for (int r = 0; r < tiles; ++r) {
    GPU_UNROLL
    for (int i = 0; i < MmaAccumulator::count; ++i) {
      const int row = first - tokens.first_query + r * 16 + mma_row(i);
      const int64_t at = head * a.queries + tokens.query_row + (is_row(row, tokens.queries) ? row : 0);
      lse[r][mma_lane_row(i)] = a.lse[at] * log2_e;
      delta[r][mma_lane_row(i)] = args.delta[at];
    }
  }

  // The last key that the mask leaves to all queries of the warp: as two conditions it would take more registers.
  const int last_common = first < end ? first : end - 1;
  int k0 = static_cast<int>(first_key(a.score, tokens.first)) / keys * keys;
  if (k0 < end) stages.begin(0, k, v, k0);
  for (int stage = 0; k0 < end; k0 += keys, stage ^= 1) {
    stages.wait();
    if (k0 + keys < end) stages.begin(stage ^ 1, k, v, k0 + keys);
    GPU_UNROLL
    for (int j = 0; j < keys; j += mma_k) {
      if (none_attend(first, first + tiles * 16 - 1, k0 + j, k0 + j + mma_k - 1, window)) continue;
      const bool unmasked = all_attend(last_common, first + tiles * 16 - 1, k0 + j, k0 + j + mma_k - 1, window);
      MmaAccumulator products[tiles][operand_tiles] = {};
      MmaAccumulator dweights[tiles][operand_tiles] = {};
      multiply<rolled>(products, q, stages.left(stage), j);
      multiply<rolled>(dweights, dout, stages.right(stage), j);
      with_plain(exponents, [&]<bool plain>() {
        GPU_UNROLL
        for (int r = 0; r < tiles; ++r) {
          GPU_UNROLL
          for (int n = 0; n < operand_tiles; ++n) {
            GPU_UNROLL
            for (int i = 0; i < MmaAccumulator::count; ++i) {
              const int query = first + r * 16 + mma_row(i);
              const int key = k0 + j + n * 16 + mma_column(i);
              const float dscore =
                  gradient_of<plain>(exponents, products[r][n].at[i], dweights[r][n].at[i], lse[r][mma_lane_row(i)],
                                     delta[r][mma_lane_row(i)], slope, key - query)
                      .dscore;
              products[r][n].at[i] = unmasked || (key < end && attends(query, key, window)) ? dscore : 0.0F;
            }
          }
        }
      });
      MmaA dscores[tiles];
      GPU_UNROLL
      for (int r = 0; r < tiles; ++r) dscores[r] = operand_of<Bf16>(products[r]);
      multiply_transposed<Bf16, D>(dq, dscores, stages.left(stage), j);
    }
  }
  GPU_UNROLL
  for (int r = 0; r < tiles; ++r) {
    q_rows.store_gradient(a, a.dq, first - tokens.first_query + r * 16, dq[r], a.score.scale);
  }
}

// Computes dk, dv or both: with the largest heads the accumulators of one of them fill a lane's registers.
template <int D, bool with_dk, bool with_dv>
GPU_FN void key_gradient(const FlashArgs& args) {
  constexpr FlashShape shape = dkv_shape(D, warp_width, wide);
  constexpr int tiles = shape.tiles;
  constexpr int block_rows = shape.rows();
  constexpr int queries = shape.inner;
  constexpr bool in_registers = warp_width == 64 || fit_in_registers<D, tiles, 2, 32>;
  const PackedAttentionArgs& a = args.packed;
  const BlockTokens tokens = key_block(a, block_rows);
  if (tokens.first >= tokens.keys) return;
  const int kv_head = block_index_y();
  const int group = a.heads / a.kv_heads;
  const HeadRows<Bf16> kv_rows = key_rows<Bf16>(a, tokens, tokens.keys, kv_head);

  Stages<Bf16, D, queries, shape.warps * warp_width> stages{dynamic_shared<Bf16>(), {}, {}};
  Bf16* const resident = dynamic_shared<Bf16>() + (in_registers ? 0 : 4 * queries * D);
  const auto k = load_own_rows<D, tiles, shape.warps, in_registers>(resident, kv_rows.source(a.k), tokens.first);
  const auto v = load_own_rows<D, tiles, shape.warps, in_registers>(resident + (in_registers ? 0 : block_rows * D),
                                                                    kv_rows.source(a.v), tokens.first);
  MmaAccumulator dk[tiles][D / 16] = {};
  MmaAccumulator dv[tiles][D / 16] = {};

  const Exponents exponents(a.score);
  const int window = window_of(a.score);
  const int first = tokens.first + warp_index() * tiles * 16;  // first key of the warp
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
    stages.begin(stage, rows.source(a.q), rows.source(a.dout), at - tokens.first_query);
  };
  if (head <= last_head) begin(0, head, q0);
  for (int stage = 0; head <= last_head; stage ^= 1) {
    stages.wait();
    const bool next_head = q0 + queries >= end;
    const int head_after = next_head ? head + 1 : head;
    const int q0_after = next_head ? first_query : q0 + queries;
    if (head_after <= last_head) begin(stage ^ 1, head_after, q0_after);
    const float slope = alibi_slope(a.score, head);
    const float* const lse_of = a.lse + head * a.queries + tokens.query_row;
    const float* const delta_of = args.delta + head * a.queries + tokens.query_row;
    GPU_UNROLL
    for (int j = 0; j < queries; j += mma_k) {
      const int query0 = q0 + j;
      if (none_attend(query0, query0 + mma_k - 1, first, first + tiles * 16 - 1, window)) continue;
      const bool unmasked = all_attend(query0, query0 + mma_k - 1, first, first + tiles * 16 - 1, window);
      float lse[operand_tiles][MmaAccumulator::count];
      float delta[operand_tiles][MmaAccumulator::count];
      GPU_UNROLL
      for (int n = 0; n < operand_tiles; ++n) {
        GPU_UNROLL
        for (int i = 0; i < MmaAccumulator::count; ++i) {
          const int row = query0 - tokens.first_query + n * 16 + mma_column(i);
          lse[n][i] = row < tokens.queries ? lse_of[row] : infinity();  // makes its weights 0
          delta[n][i] = row < tokens.queries ? delta_of[row] : 0.0F;
        }
      }
      MmaAccumulator products[tiles][operand_tiles] = {};
      MmaAccumulator dweights[tiles][operand_tiles] = {};
      multiply(products, k, stages.left(stage), j);
      if constexpr (with_dk) multiply(dweights, v, stages.right(stage), j);
      with_plain(exponents, [&]<bool plain>() {
        GPU_UNROLL
        for (int r = 0; r < tiles; ++r) {
          GPU_UNROLL
          for (int n = 0; n < operand_tiles; ++n) {
            GPU_UNROLL
            for (int i = 0; i < MmaAccumulator::count; ++i) {
              const int key = first + r * 16 + mma_row(i);
              const int query = query0 + n * 16 + mma_column(i);
              const WeightAndGradient gradient =
                  gradient_of<plain>(exponents, products[r][n].at[i], dweights[r][n].at[i], lse[n][i] * log2_e,
                                     delta[n][i], slope, key - query);
              const bool attended = unmasked || attends(query, key, window);
              products[r][n].at[i] = attended ? gradient.weight : 0.0F;
              dweights[r][n].at[i] = attended ? gradient.dscore : 0.0F;
            }
          }
        }
      });
      MmaA weights[tiles];
      MmaA dscores[tiles];
      GPU_UNROLL
      for (int r = 0; r < tiles; ++r) {
        weights[r] = operand_of<Bf16>(products[r]);
        dscores[r] = operand_of<Bf16>(dweights[r]);
      }
      if constexpr (with_dv) multiply_transposed<Bf16, D>(dv, weights, stages.right(stage), j);
      if constexpr (with_dk) multiply_transposed<Bf16, D>(dk, dscores, stages.left(stage), j);
    }
    head = head_after;
    q0 = q0_after;
  }
  GPU_UNROLL
  for (int r = 0; r < tiles; ++r) {
    if constexpr (with_dk) kv_rows.store_gradient(a, a.dk, first + r * 16, dk[r], a.score.scale);
    if constexpr (with_dv) kv_rows.store_gradient(a, a.dv, first + r * 16, dv[r], 1.0F);
  }
}

}  // namespace

GPU_KERNEL_BODY(flash_delta, FlashArgs) { compute_delta(a); }
GPU_KERNEL_BODY(flash_dq_64, FlashArgs) { query_gradient<64>(a); }
GPU_KERNEL_BODY(flash_dq_128, FlashArgs) { query_gradient<128>(a); }
GPU_KERNEL_BODY(flash_dq_256, FlashArgs) { query_gradient<256>(a); }
GPU_KERNEL_BODY(flash_dkv_64, FlashArgs) { key_gradient<64, true, true>(a); }
GPU_KERNEL_BODY(flash_dkv_128, FlashArgs) { key_gradient<128, true, true>(a); }
GPU_KERNEL_BODY(flash_dk_256, FlashArgs) { key_gradient<256, true, false>(a); }
GPU_KERNEL_BODY(flash_dv_256, FlashArgs) { key_gradient<256, false, true>(a); }

}  // namespace ingot::gpu::GPU_TARGET

#else

namespace ingot::gpu {
namespace {

using ops::Context;

void run_backward(Context& context, const Tensor& dq, const Tensor& dk, const Tensor& dv, const Tensor& dout,
                  const ops::AttentionSaved& saved, const Tensor& offsets, ops::AttentionAttributes attributes) {
  const Arena::Scope scope(context.scratch);
  const FlashArgs args = launch_delta(context, dq, dk, dv, dout, saved, offsets, attributes);
  const int lanes = device_of(context).warp_width();
  const int d = padded_d(attributes.head_dim);
  const FlashShape q_shape = dq_shape(d, lanes, is_wide(context));
  launch(context,
         d == 64    ? flash_dq_64
         : d == 128 ? flash_dq_128
                    : flash_dq_256,
         query_grid(args.packed, q_shape), args, q_shape.shared_bytes(d, lanes, 2));
  const FlashShape kv_shape = dkv_shape(d, lanes, is_wide(context));
  const auto launch_kv = [&](const Kernel<FlashArgs>& kernel) {
    launch(context, kernel, key_grid(args.packed, kv_shape), args, kv_shape.shared_bytes(d, lanes, 2));
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
  return decline_tiles(attributes, {dout, dq, dk, dv, saved.out, saved.q, saved.k, saved.v}, refuse);
}

}  // namespace

FlashArgs launch_delta(Context& context, const Tensor& dq, const Tensor& dk, const Tensor& dv, const Tensor& dout,
                       const ops::AttentionSaved& saved, const Tensor& offsets,
                       const ops::AttentionAttributes& attributes) {
  FlashArgs args{packed_args(saved.out, saved.lse, saved.q, saved.k, saved.v, offsets, attributes), nullptr};
  args.packed.dout = dout.data;
  args.packed.dq = dq.data;
  args.packed.dk = dk.data;
  args.packed.dv = dv.data;
  args.delta = static_cast<float*>(
      context.scratch.allocate_bytes(static_cast<size_t>(args.packed.queries * attributes.heads) * sizeof(float)));
  const int d = padded_d(attributes.head_dim);
  launch(context, flash_delta, {blocks_of(args.packed.queries, 128 / (d / 8)), attributes.heads}, args);
  return args;
}

void register_attention_mma_backward(ops::Registry& registry, DeviceKind kind) {
  registry.add<ops::AttentionBackward>(kind, "mma", run_backward, decline_backward);
}

}  // namespace ingot::gpu
#endif
