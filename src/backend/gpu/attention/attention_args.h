// What the attention kernels share: argument structs, scores and masks.
#pragma once

#include "backend/gpu/elementwise/functions.h"

#if !GPU_KERNEL_PASS
#include "backend/gpu/launch.h"
#include "ops/attention.h"
#include "ops/refusal.h"
#endif

namespace ingot::gpu {

// A score is scale <q, k>; with softcap > 0 it becomes softcap tanh(score / softcap); with slopes, ALiBi adds
// slopes[head] (key - query). Query i of a sequence attends to keys first(i) .. i,
// first(i) = max(0, i - window + 1), or 0 without a window.
struct ScoreArgs {
  float scale;
  float softcap;
  const float* slopes;  // [heads]
  int64_t window;
};

struct PackedAttentionArgs {
  void* out;   // [queries, heads d]
  float* lse;  // [heads, queries]; may be null in the forward pass, unless it accumulates
  const void* q;
  const void* k;  // [keys, kv_heads d]
  const void* v;
  const int32_t* offsets;  // [sequences + 1]
  // Backward only.
  const void* dout;
  void* dq;
  void* dk;
  void* dv;
  int64_t queries, keys;
  int32_t first_query, first_key;  // the tokens of query 0 and of key 0
  int32_t sequences, heads, kv_heads, d;
  // Of keys of a part of the tokens: out, dq, dk and dv are f32, instead of q's type, and with `accumulate` joined with
  // what is there.
  bool partial, accumulate;
  ScoreArgs score;
};

struct PagedAttentionArgs {
  void* out;
  const void* q;
  const void* k;  // [pages, page, kv_heads d]
  const void* v;
  const int32_t* query_offsets;  // [sequences + 1]
  const int32_t* lengths;        // [sequences]
  const int32_t* tables;         // [sequences, max_pages]
  int64_t tokens, max_pages, page;
  int32_t sequences, heads, kv_heads, d;
  ScoreArgs score;
};

}  // namespace ingot::gpu

#if GPU_KERNEL_PASS
namespace ingot::gpu::GPU_TARGET {

struct Score {
  float value;
  float derivative;  // with respect to <q, k>
};
GPU_FN Score score_of(const ScoreArgs& a, float product, int head, int64_t distance) {
  Score score{a.scale * product, a.scale};
  if (a.softcap > 0) {
    const float tanh_score = hyperbolic_tangent(score.value / a.softcap);
    score = {a.softcap * tanh_score, a.scale * (1.0F - tanh_score * tanh_score)};
  }
  if (a.slopes != nullptr) score.value = fma(a.slopes[head], static_cast<float>(distance), score.value);
  return score;
}
GPU_FN int64_t first_key(const ScoreArgs& a, int64_t query) {
  return a.window > 0 && query + 1 > a.window ? query + 1 - a.window : 0;
}

// Attention over two sets of keys, from their log-sum-exps, which are -infinity without keys: the shares of both
// results in the joined one, and its log-sum-exp. Where one set has no key, the other's share is exactly 1.
struct JoinedSoftmax {
  float own, earlier, lse;
};
GPU_FN JoinedSoftmax join(float own, float earlier) {
  const float top = earlier > own ? earlier : own;
  if (top == -bits_of<float>(0x7f800000)) return {0.0F, 0.0F, top};
  const float own_weight = exponential(own - top);
  const float earlier_weight = exponential(earlier - top);
  const float total = own_weight + earlier_weight;
  return {own_weight / total, earlier_weight / total, top + logarithm(total)};
}

// The sequence that contains `row`: offsets[s] <= row < offsets[s + 1].
GPU_FN int sequence_of(const int32_t* offsets, int sequences, int64_t row) {
  int low = 0;
  int high = sequences - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (offsets[middle] <= row) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

}  // namespace ingot::gpu::GPU_TARGET

#else
namespace ingot::gpu {

inline ScoreArgs score_args(const ops::AttentionAttributes& a) {
  return {a.scale, a.softcap, a.slopes ? a.slopes.as<float>() : nullptr, a.window};
}

// Whether the tensor-core kernels cannot run the call; the first tensor has the type of the operands.
inline bool decline_tiles(const ops::AttentionAttributes& a, std::initializer_list<Tensor> tensors,
                          ops::Refusal refuse) {
  if (tensors.begin()->dtype == DType::f32) return refuse("does not support f32");
  if (a.head_dim > 256) return refuse("head size {} is above 256", a.head_dim);
  if (a.head_dim % 8 != 0) return refuse("head size {} is not a multiple of 8", a.head_dim);
  if (!(a.scale > 0)) return refuse("scale {} is not above 0", a.scale);
  return !is_vectorizable(8, tensors) && refuse("tensors are not aligned to 16 bytes");
}

inline PackedAttentionArgs packed_args(const Tensor& out, const Tensor& lse, const Tensor& q, const Tensor& k,
                                       const Tensor& v, const Tensor& offsets, const ops::AttentionAttributes& a) {
  return {.out = out.data,
          .lse = lse ? lse.as<float>() : nullptr,
          .q = q.data,
          .k = k.data,
          .v = v.data,
          .offsets = offsets.as<int32_t>(),
          .queries = q.shape[0],
          .keys = k.shape[0],
          .first_query = static_cast<int32_t>(a.first_query),
          .first_key = static_cast<int32_t>(a.first_key.value_or(0)),
          .sequences = static_cast<int32_t>(offsets.shape[0] - 1),
          .heads = static_cast<int32_t>(a.heads),
          .kv_heads = static_cast<int32_t>(a.kv_heads),
          .d = static_cast<int32_t>(a.head_dim),
          .partial = a.first_key.has_value(),
          .accumulate = a.accumulate,
          .score = score_args(a)};
}

inline PagedAttentionArgs paged_args(const Tensor& out, const Tensor& q, const ops::KvPages& pages,
                                     const ops::PagedLayout& layout, const ops::AttentionAttributes& a) {
  return {.out = out.data,
          .q = q.data,
          .k = pages.k.data,
          .v = pages.v.data,
          .query_offsets = layout.query_offsets.as<int32_t>(),
          .lengths = layout.lengths.as<int32_t>(),
          .tables = layout.tables.as<int32_t>(),
          .tokens = q.shape[0],
          .max_pages = layout.tables.shape[1],
          .page = pages.k.shape[1],
          .sequences = static_cast<int32_t>(layout.lengths.shape[0]),
          .heads = static_cast<int32_t>(a.heads),
          .kv_heads = static_cast<int32_t>(a.kv_heads),
          .d = static_cast<int32_t>(a.head_dim),
          .score = score_args(a)};
}

}  // namespace ingot::gpu
#endif
