// What the kernels of flash attention's forward pass do with a warp's tile of 16 queries (attention_mma.gpu.cpp,
// arch/attention_sm90.gpu.cpp). Kernel passes only.
#pragma once

#include "backend/gpu/attention/flash.h"

#if GPU_KERNEL_PASS
namespace ingot::gpu::GPU_TARGET {

// Applies softcap, ALiBi and the mask to scores of queries from `query` on with keys from `key` on, of which those from
// `end` on do not exist.
struct ScoreModifier {
  Exponents exponents;
  float slope;  // as in Exponents::modified
  int window;   // of `attends`
  GPU_FN ScoreModifier(const ScoreArgs& a, int head)
      : exponents(a), slope(alibi_slope(a, head)), window(window_of(a)) {}

  template <int count>
  GPU_FN void modify(MmaAccumulator (&scores)[count], int query, int key) const {
    if (exponents.plain) return;
    GPU_UNROLL
    for (int n = 0; n < count; ++n) {
      GPU_UNROLL
      for (int i = 0; i < MmaAccumulator::count; ++i) {
        const int distance = key + n * 16 + mma_column(i) - (query + mma_row(i));
        scores[n].at[i] = exponents.modified(scores[n].at[i], slope, distance).value;
      }
    }
  }
  template <int count>
  GPU_FN void mask(MmaAccumulator (&scores)[count], int query, int key, int end) const {
    GPU_UNROLL
    for (int n = 0; n < count; ++n) {
      GPU_UNROLL
      for (int i = 0; i < MmaAccumulator::count; ++i) {
        const int column = key + n * 16 + mma_column(i);
        if (column >= end || !attends(query + mma_row(i), column, window)) scores[n].at[i] = -infinity();
      }
    }
  }
};

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

  // Replaces scores by weights. The caller must multiply its sums so far by `rescale`, which is exactly 1 where no
  // score is above the maximum so far.
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
      rescale[m] = exp2_approx(max[m] * factor - base[m]);
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

// Stores the results of 16 queries from row `row` of q_rows on, as `a` says: out, the sums of the weighted values, and
// the log-sum-exps.
template <class T, int count>
GPU_FN void store_attention(const PackedAttentionArgs& a, const BlockTokens& tokens, const HeadRows<T>& q_rows,
                            int head, int row, const Softmax& softmax, float factor,
                            const MmaAccumulator (&out)[count]) {
  const int64_t lse_row = head * a.queries + tokens.query_row + row;
  float factors[mma_lane_rows];
  float lse[mma_lane_rows];
  GPU_UNROLL
  for (int m = 0; m < mma_lane_rows; ++m) {
    const float total = row_sum(softmax.total[m]);
    factors[m] = 1.0F / total;
    lse[m] = fma(softmax.max[m] * factor, ln_2, logarithm(total));
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
    q_rows.store_joined(a.out, row, out, factors, earlier);
  } else {
    q_rows.store(a.out, row, out, factors);
  }
  if (a.lse == nullptr) return;
  GPU_UNROLL
  for (int i = 0; i < MmaAccumulator::count; ++i) {
    if (mma_column(i) == 0 && is_row(row + mma_row(i), tokens.queries)) {
      a.lse[lse_row + mma_row(i)] = lse[mma_lane_row(i)];
    }
  }
}

}  // namespace ingot::gpu::GPU_TARGET
#endif
