// The forward pass of flash attention on tensor cores (flash.h).
#include "backend/gpu/attention/flash_forward.h"

namespace ingot::gpu {

GPU_FN constexpr FlashShape forward_shape(int d, int lanes, bool wide) {
  return d == 256           ? FlashShape{4, 1, lanes == 64 ? 32 : 16}
         : d == 128 && wide ? FlashShape{4, 1, 16}
                            : FlashShape{4, 2, 32};
}

}  // namespace ingot::gpu

// The suffix is the max head dimension.
GPU_KERNEL_PAIRED(flash_64, PackedAttentionArgs, 4)
GPU_KERNEL_PAIRED(flash_128, PackedAttentionArgs, 4)
GPU_KERNEL_WARPS(flash_256, PackedAttentionArgs, 4)
GPU_KERNEL_PAIRED(flash_f16_64, PackedAttentionArgs, 4)
GPU_KERNEL_PAIRED(flash_f16_128, PackedAttentionArgs, 4)
GPU_KERNEL_WARPS(flash_f16_256, PackedAttentionArgs, 4)

#if GPU_KERNEL_PASS
namespace ingot::gpu::GPU_TARGET {
namespace {

template <class T, int D>
GPU_FN void forward(const PackedAttentionArgs& a) {
  constexpr FlashShape shape = forward_shape(D, warp_width, wide);
  constexpr int tiles = shape.tiles;
  constexpr int block_rows = shape.rows();
  constexpr int keys = shape.inner;
  constexpr bool in_registers = warp_width == 64 || fit_in_registers<D, tiles, 1, 32>;
  const BlockTokens tokens = query_block(a, block_rows);
  if (!tokens.has_query(block_rows)) return;
  const int head = block_index_y();
  const HeadRows<T> q_rows = query_rows<T>(a, tokens, head);
  const int end = tokens.end_of_keys(block_rows);
  const HeadRows<T> kv_rows = key_rows<T>(a, tokens, end, head / (a.heads / a.kv_heads));
  const Source<T> k = kv_rows.source(a.k);
  const Source<T> v = kv_rows.source(a.v);

  Stages<T, D, keys, shape.warps * warp_width> stages{dynamic_shared<T>(), {}, {}};
  const auto q = load_own_rows<D, tiles, shape.warps, in_registers>(
      dynamic_shared<T>() + (in_registers ? 0 : 4 * keys * D), q_rows.source(a.q), tokens.first - tokens.first_query);
  MmaAccumulator out[tiles][D / 16] = {};
  Softmax softmax[tiles];

  const ScoreModifier modifier(a.score, head);
  const int window = modifier.window;
  const int first = tokens.first + warp_index() * tiles * 16;  // first query of the warp
  int k0 = static_cast<int>(first_key(a.score, tokens.first)) / keys * keys;
  if (k0 < end) stages.begin(0, k, v, k0);
  for (int stage = 0; k0 < end; k0 += keys, stage ^= 1) {
    stages.wait();
    if (k0 + keys < end) stages.begin(stage ^ 1, k, v, k0 + keys);
    if (none_attend(first, first + tiles * 16 - 1, k0, k0 + keys - 1, window)) continue;
    const bool unmasked = k0 + keys <= end && all_attend(first, first + tiles * 16 - 1, k0, k0 + keys - 1, window);
    MmaAccumulator scores[tiles][keys / 16] = {};
    multiply(scores, q, stages.left(stage), 0);
    bool max_changed = false;
    float rescale[tiles][mma_lane_rows];
    GPU_UNROLL
    for (int r = 0; r < tiles; ++r) {
      modifier.modify(scores[r], first + r * 16, k0);
      if (!unmasked) modifier.mask(scores[r], first + r * 16, k0, end);
      softmax[r].add(scores[r], modifier.exponents.factor, rescale[r]);
      GPU_UNROLL
      for (int m = 0; m < mma_lane_rows; ++m) max_changed = max_changed || rescale[r][m] != 1.0F;
    }
    if (warp_ballot(max_changed) != 0) {
      GPU_UNROLL
      for (int r = 0; r < tiles; ++r) {
        GPU_UNROLL
        for (int n = 0; n < D / 16; ++n) {
          GPU_UNROLL
          for (int i = 0; i < MmaAccumulator::count; ++i) out[r][n].at[i] *= rescale[r][mma_lane_row(i)];
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
    const int row = first - tokens.first_query + r * 16;
    store_attention(a, tokens, q_rows, head, row, softmax[r], modifier.exponents.factor, out[r]);
  }
}

}  // namespace

GPU_KERNEL_BODY(flash_64, PackedAttentionArgs) { forward<Bf16, 64>(a); }
GPU_KERNEL_BODY(flash_128, PackedAttentionArgs) { forward<Bf16, 128>(a); }
GPU_KERNEL_BODY(flash_256, PackedAttentionArgs) { forward<Bf16, 256>(a); }
GPU_KERNEL_BODY(flash_f16_64, PackedAttentionArgs) { forward<F16, 64>(a); }
GPU_KERNEL_BODY(flash_f16_128, PackedAttentionArgs) { forward<F16, 128>(a); }
GPU_KERNEL_BODY(flash_f16_256, PackedAttentionArgs) { forward<F16, 256>(a); }

}  // namespace ingot::gpu::GPU_TARGET

#else

#include "backend/gpu/ops.h"

namespace ingot::gpu {
namespace {

using ops::Context;

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
         query_grid(args, shape), args, shape.shared_bytes(d, lanes, 1));
}
bool decline_forward(const Context&, const Tensor& out, const Tensor&, const Tensor& q, const Tensor& k,
                     const Tensor& v, const Tensor&, ops::AttentionAttributes attributes, ops::Refusal refuse) {
  return decline_tiles(attributes, {q, k, v, out}, refuse);
}

}  // namespace

void register_attention_mma(ops::Registry& registry, DeviceKind kind) {
  registry.add<ops::Attention>(kind, "mma", run_forward, decline_forward);
  register_attention_mma_backward(registry, kind);
}

}  // namespace ingot::gpu
#endif
