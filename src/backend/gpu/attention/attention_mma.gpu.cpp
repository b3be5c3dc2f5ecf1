// The forward pass of flash attention on tensor cores (flash.h).
#include "backend/gpu/attention/flash.h"

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

// The online softmax of 16 queries over the keys so far.
struct Softmax {
  float max[mma_lane_rows];    // of the scores, in the units of Exponents
  float total[mma_lane_rows];  // the lane's part of the sum of the weights exp(score - max)
  GPU_FN Softmax() {
    GPU_UNROLL
    for (int m = 0; m < mma_lane_rows; ++m) {
      max[m] = -infinity();
      total[m] = 0;
    }
  }

  // Replaces scores by weights. The caller must multiply its sums so far by `rescale`.
  template <int count>
  GPU_FN void add(MmaAccumulator (&scores)[count], float factor, float (&rescale)[mma_lane_rows]) {
    float base[mma_lane_rows];
    GPU_UNROLL
    for (int m = 0; m < mma_lane_rows; ++m) {
      float new_max = max[m];
      GPU_UNROLL
      for (int n = 0; n < count; ++n) {
        GPU_UNROLL
        for (int i = 0; i < MmaAccumulator::count; ++i) {
          if (mma_lane_row(i) == m) new_max = scores[n].at[i] > new_max ? scores[n].at[i] : new_max;
        }
      }
      new_max = row_max(new_max);
      base[m] = new_max > -infinity() ? new_max * factor : 0.0F;  // no key so far: every weight is 0
      rescale[m] = exp2_approx(fma(max[m], factor, -base[m]));
      max[m] = new_max;
      total[m] *= rescale[m];
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

  const Exponents exponents(a.score);
  const float slope = alibi_slope(a.score, head);
  const int window = window_of(a.score);
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
      if (!exponents.plain) {
        GPU_UNROLL
        for (int n = 0; n < keys / 16; ++n) {
          GPU_UNROLL
          for (int i = 0; i < MmaAccumulator::count; ++i) {
            const int distance = k0 + n * 16 + mma_column(i) - (first + r * 16 + mma_row(i));
            scores[r][n].at[i] = exponents.modified(scores[r][n].at[i], slope, distance).value;
          }
        }
      }
      if (!unmasked) {
        GPU_UNROLL
        for (int n = 0; n < keys / 16; ++n) {
          GPU_UNROLL
          for (int i = 0; i < MmaAccumulator::count; ++i) {
            const int key = k0 + n * 16 + mma_column(i);
            if (key >= end || !attends(first + r * 16 + mma_row(i), key, window)) scores[r][n].at[i] = -infinity();
          }
        }
      }
      softmax[r].add(scores[r], exponents.factor, rescale[r]);
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
    const int64_t lse_row = head * a.queries + tokens.query_row + row;
    float factors[mma_lane_rows];
    float lse[mma_lane_rows];
    GPU_UNROLL
    for (int m = 0; m < mma_lane_rows; ++m) {
      const float total = row_sum(softmax[r].total[m]);
      factors[m] = 1.0F / total;
      lse[m] = fma(softmax[r].max[m] * exponents.factor, ln_2, logarithm(total));
    }
    if (a.partial) {
      float earlier[mma_lane_rows];
      GPU_UNROLL
      for (int i = 0; i < MmaAccumulator::count; ++i) {
        const bool accumulates = a.accumulate && is_row(row + mma_row(i), tokens.queries);
        earlier[mma_lane_row(i)] = accumulates ? a.lse[lse_row + mma_row(i)] : -infinity();
      }
      warp_barrier();  // all lanes have read lse
      GPU_UNROLL
      for (int m = 0; m < mma_lane_rows; ++m) {
        const JoinedSoftmax joined = join(lse[m], earlier[m]);
        factors[m] = lse[m] == -infinity() ? 0.0F : joined.own * factors[m];
        lse[m] = joined.lse;
        earlier[m] = joined.earlier;
      }
      q_rows.store_joined(a.out, row, out[r], factors, earlier);
    } else {
      q_rows.store(a.out, row, out[r], factors);
    }
    if (a.lse == nullptr) continue;
    GPU_UNROLL
    for (int i = 0; i < MmaAccumulator::count; ++i) {
      if (mma_column(i) == 0 && is_row(row + mma_row(i), tokens.queries)) {
        a.lse[lse_row + mma_row(i)] = lse[mma_lane_row(i)];
      }
    }
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
