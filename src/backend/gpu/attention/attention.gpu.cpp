// Attention without matrix instructions, one warp per query or key: all dtypes, heads of up to 256 elements, packed
// sequences and the paged KV cache. The fallback for calls that the kernels on matrix tiles (attention_mma.gpu.cpp,
// attention_paged.gpu.cpp) decline.
#include "backend/gpu/attention/attention_args.h"

GPU_KERNEL_FORWARD_TYPES(attention, PackedAttentionArgs, 256)
GPU_KERNEL_TYPES(attention_dq, PackedAttentionArgs, 256)
GPU_KERNEL_TYPES(attention_dkv, PackedAttentionArgs, 256)
GPU_KERNEL_FORWARD_TYPES(paged_attention, PagedAttentionArgs, 256)

#if GPU_KERNEL_PASS
namespace ingot::gpu::GPU_TARGET {
namespace {

constexpr int max_d = 256;
constexpr int warps = 256 / warp_width;
constexpr int lane_d = max_d / warp_width;  // elements of a head per lane

// The shared memory of a warp. `left` and `right` hold the q and dout of its query, or the k and v of its key.
struct WarpStorage {
  float left[max_d];
  float right[max_d];
  float weights[warp_width];  // softmax weights of a tile of keys or queries; in the gradient of queries dS
  float dscores[warp_width];
};
struct SharedStorage {
  WarpStorage of[warps];
};

template <class T>
GPU_FN void load_vector(float* to, const T* from, int d) {
  for (int i = lane_index(); i < d; i += warp_width) to[i] = to_float(from[i]);
}

template <class Left, class Right>
GPU_FN float dot(const Left* left, const Right* right, int d) {
  float sum = 0;
  for (int i = 0; i < d; ++i) sum = fma(to_float(left[i]), to_float(right[i]), sum);
  return sum;
}

// sums[c] += sum over j < count of weights[j] * row(j)[lane + c warp_width].
template <class Rows>
GPU_FN void add_rows(float (&sums)[lane_d], const float* weights, int count, int d, Rows row) {
  for (int j = 0; j < count; ++j) {
    const auto* from = row(j);
    const float weight = weights[j];
    for (int c = 0; c < lane_d; ++c) {
      const int i = lane_index() + c * warp_width;
      if (i < d) sums[c] = fma(weight, to_float(from[i]), sums[c]);
    }
  }
}

template <class T>
GPU_FN void store_sums(T* to, const float (&sums)[lane_d], float factor, int d) {
  for (int c = 0; c < lane_d; ++c) {
    const int i = lane_index() + c * warp_width;
    if (i < d) to[i] = from_float<T>(sums[c] * factor);
  }
}
// Stores a row of results, from element `at` on, as `a` says. Partial ones: plus `earlier` times what is there, which
// is not read for 0.
template <class T>
GPU_FN void store_row(const PackedAttentionArgs& a, void* to, int64_t at, const float (&sums)[lane_d], float factor,
                      float earlier) {
  if (!a.partial) return store_sums(static_cast<T*>(to) + at, sums, factor, a.d);
  float* const row = static_cast<float*>(to) + at;
  for (int c = 0; c < lane_d; ++c) {
    const int i = lane_index() + c * warp_width;
    if (i < a.d) row[i] = fma(earlier, earlier != 0 ? row[i] : 0.0F, sums[c] * factor);
  }
}

// The keys, by their number in the sequence that begins at token `start`, that a query of it attends to.
struct KeyRange {
  int64_t begin, end;
};
GPU_FN KeyRange keys_of(const PackedAttentionArgs& a, int64_t start, int64_t query) {
  const int64_t first = first_key(a.score, query), before = a.first_key - start;
  return {before > first ? before : first, before + a.keys < query + 1 ? before + a.keys : query + 1};
}

// The maximum of scores, and the sum of exp(score - max).
struct SoftmaxSum {
  float max, total;
};
// One query over its keys, by online softmax: adds the values, each times exp(score - max), to `sums`, which are zeros.
// key(j) and value(j) are the rows of key j.
template <class T, class Keys, class Values>
GPU_FN SoftmaxSum attend(WarpStorage& shared, float (&sums)[lane_d], const T* q, int64_t query, KeyRange keys, int head,
                         int d, const ScoreArgs& a, Keys key, Values value) {
  load_vector(shared.left, q, d);
  warp_barrier();
  float max_score = -bits_of<float>(0x7f800000);
  float total = 0;
  for (int64_t base = keys.begin; base < keys.end; base += warp_width) {
    const int64_t left = keys.end - base;
    const int count = left < warp_width ? static_cast<int>(left) : warp_width;
    const int64_t j = base + lane_index();
    const bool in_range = lane_index() < count;
    const float score =
        in_range ? score_of(a, dot(shared.left, key(j), d), head, j - query).value : -bits_of<float>(0x7f800000);
    const float tile_max = warp_max(score);
    const float new_max = tile_max > max_score ? tile_max : max_score;
    const float weight = in_range ? exponential(score - new_max) : 0.0F;
    const float rescale = exponential(max_score - new_max);
    total = fma(total, rescale, warp_sum(weight));
    max_score = new_max;
    shared.weights[lane_index()] = weight;
    warp_barrier();
    for (int c = 0; c < lane_d; ++c) sums[c] *= rescale;
    add_rows(sums, shared.weights, count, d, [&](int i) { return value(base + i); });
    warp_barrier();
  }
  return {max_score, total};
}

template <class T>
GPU_FN void forward(const PackedAttentionArgs& a) {
  GPU_SHARED(SharedStorage, block_shared);
  const int64_t row = static_cast<int64_t>(block_index()) * warps + warp_index();
  if (row >= a.queries) return;
  const int head = block_index_y();
  const int64_t token = a.first_query + row;
  const int64_t start = a.offsets[sequence_of(a.offsets, a.sequences, token)];
  const int64_t width = static_cast<int64_t>(a.kv_heads) * a.d;
  const int64_t first = (start - a.first_key) * width + head / (a.heads / a.kv_heads) * a.d;
  const T* k = static_cast<const T*>(a.k) + first;
  const T* v = static_cast<const T*>(a.v) + first;
  const int64_t at = row * a.heads * a.d + head * a.d;
  float sums[lane_d] = {};
  const SoftmaxSum softmax = attend(
      block_shared.of[warp_index()], sums, static_cast<const T*>(a.q) + at, token - start,
      keys_of(a, start, token - start), head, a.d, a.score, [&](int64_t j) { return k + j * width; },
      [&](int64_t j) { return v + j * width; });
  const int64_t lse_at = head * a.queries + row;
  float lse = softmax.max + logarithm(softmax.total);
  float factor = 1.0F / softmax.total;
  float earlier = 0;
  if (a.partial) {
    const JoinedSoftmax joined = join(lse, a.accumulate ? a.lse[lse_at] : -bits_of<float>(0x7f800000));
    warp_barrier();  // all lanes have read lse
    factor = softmax.total == 0 ? 0.0F : joined.own * factor;
    earlier = joined.earlier;
    lse = joined.lse;
  }
  store_row<T>(a, a.out, at, sums, factor, earlier);
  if (a.lse != nullptr && lane_index() == 0) a.lse[lse_at] = lse;
}

template <class T>
GPU_FN void over_pages(const PagedAttentionArgs& a) {
  GPU_SHARED(SharedStorage, block_shared);
  const int64_t row = static_cast<int64_t>(block_index()) * warps + warp_index();
  if (row >= a.tokens) return;
  const int head = block_index_y();
  const int s = sequence_of(a.query_offsets, a.sequences, row);
  const int64_t query = a.lengths[s] - (a.query_offsets[s + 1] - row);
  const int32_t* table = a.tables + s * a.max_pages;
  const int64_t width = static_cast<int64_t>(a.kv_heads) * a.d;
  const int64_t column = head / (a.heads / a.kv_heads) * a.d;
  const auto offset = [&](int64_t j) { return (table[j / a.page] * a.page + j % a.page) * width + column; };
  const int64_t at = row * a.heads * a.d + head * a.d;
  float sums[lane_d] = {};
  const SoftmaxSum softmax = attend(
      block_shared.of[warp_index()], sums, static_cast<const T*>(a.q) + at, query,
      {first_key(a.score, query), query + 1}, head, a.d, a.score,
      [&](int64_t j) { return static_cast<const T*>(a.k) + offset(j); },
      [&](int64_t j) { return static_cast<const T*>(a.v) + offset(j); });
  store_sums(static_cast<T*>(a.out) + at, sums, 1.0F / softmax.total, a.d);
}

// One warp per query: dq = sum over its keys of ds k.
template <class T>
GPU_FN void query_gradient(const PackedAttentionArgs& a) {
  GPU_SHARED(SharedStorage, block_shared);
  WarpStorage& shared = block_shared.of[warp_index()];
  const int64_t row = static_cast<int64_t>(block_index()) * warps + warp_index();
  if (row >= a.queries) return;
  const int head = block_index_y();
  const int64_t token = a.first_query + row;
  const int64_t start = a.offsets[sequence_of(a.offsets, a.sequences, token)];
  const int64_t query = token - start;
  const KeyRange keys = keys_of(a, start, query);
  const int64_t width = static_cast<int64_t>(a.kv_heads) * a.d;
  const int64_t first = (start - a.first_key) * width + head / (a.heads / a.kv_heads) * a.d;
  const T* k = static_cast<const T*>(a.k) + first;
  const T* v = static_cast<const T*>(a.v) + first;
  const int64_t at = row * a.heads * a.d + head * a.d;
  load_vector(shared.left, static_cast<const T*>(a.q) + at, a.d);
  load_vector(shared.right, static_cast<const T*>(a.dout) + at, a.d);
  warp_barrier();
  const float delta = dot(shared.right, static_cast<const T*>(a.out) + at, a.d);
  const float lse = a.lse[head * a.queries + row];
  float sums[lane_d] = {};
  for (int64_t base = keys.begin; base < keys.end; base += warp_width) {
    const int64_t left = keys.end - base;
    const int count = left < warp_width ? static_cast<int>(left) : warp_width;
    const int64_t j = base + lane_index();
    if (lane_index() < count) {
      const Score score = score_of(a.score, dot(shared.left, k + j * width, a.d), head, j - query);
      const float p = exponential(score.value - lse);
      shared.weights[lane_index()] = p * (dot(shared.right, v + j * width, a.d) - delta) * score.derivative;
    }
    warp_barrier();
    add_rows(sums, shared.weights, count, a.d, [&](int i) { return k + (base + i) * width; });
    warp_barrier();
  }
  store_row<T>(a, a.dq, at, sums, 1.0F, a.accumulate ? 1.0F : 0.0F);
}

// One warp per key: dv = sum of p dout, dk = sum of ds q, over the queries of all its query heads in order.
template <class T>
GPU_FN void key_gradient(const PackedAttentionArgs& a) {
  GPU_SHARED(SharedStorage, block_shared);
  WarpStorage& shared = block_shared.of[warp_index()];
  const int64_t row = static_cast<int64_t>(block_index()) * warps + warp_index();
  if (row >= a.keys) return;
  const int kv_head = block_index_y();
  const int group = a.heads / a.kv_heads;
  const int64_t token = a.first_key + row;
  const int s = sequence_of(a.offsets, a.sequences, token);
  // The key and the queries from `key` on that attend to it, as rows of q, which there are from 0 on.
  const int64_t key = token - a.first_query;
  const int64_t last = a.offsets[s + 1] - a.first_query < a.queries ? a.offsets[s + 1] - a.first_query : a.queries;
  const int64_t end = a.score.window > 0 && key + a.score.window < last ? key + a.score.window : last;
  const int64_t at = row * a.kv_heads * a.d + kv_head * a.d;
  load_vector(shared.left, static_cast<const T*>(a.k) + at, a.d);
  load_vector(shared.right, static_cast<const T*>(a.v) + at, a.d);
  warp_barrier();
  float dk[lane_d] = {};
  float dv[lane_d] = {};
  const int64_t width = static_cast<int64_t>(a.heads) * a.d;
  for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    const T* q = static_cast<const T*>(a.q) + head * a.d;
    const T* out = static_cast<const T*>(a.out) + head * a.d;
    const T* dout = static_cast<const T*>(a.dout) + head * a.d;
    for (int64_t base = key < 0 ? 0 : key; base < end; base += warp_width) {
      const int64_t left = end - base;
      const int count = left < warp_width ? static_cast<int>(left) : warp_width;
      const int64_t i = base + lane_index();
      if (lane_index() < count) {
        const Score score = score_of(a.score, dot(shared.left, q + i * width, a.d), head, key - i);
        const float p = exponential(score.value - a.lse[head * a.queries + i]);
        const float delta = dot(dout + i * width, out + i * width, a.d);
        shared.weights[lane_index()] = p;
        shared.dscores[lane_index()] = p * (dot(shared.right, dout + i * width, a.d) - delta) * score.derivative;
      }
      warp_barrier();
      add_rows(dv, shared.weights, count, a.d, [&](int n) { return dout + (base + n) * width; });
      add_rows(dk, shared.dscores, count, a.d, [&](int n) { return q + (base + n) * width; });
      warp_barrier();
    }
  }
  const float earlier = a.accumulate ? 1.0F : 0.0F;
  store_row<T>(a, a.dk, at, dk, 1.0F, earlier);
  store_row<T>(a, a.dv, at, dv, 1.0F, earlier);
}

}  // namespace

GPU_KERNEL_BODY_FORWARD_TYPES(attention, PackedAttentionArgs, forward)
GPU_KERNEL_BODY_TYPES(attention_dq, PackedAttentionArgs, query_gradient)
GPU_KERNEL_BODY_TYPES(attention_dkv, PackedAttentionArgs, key_gradient)
GPU_KERNEL_BODY_FORWARD_TYPES(paged_attention, PagedAttentionArgs, over_pages)

}  // namespace ingot::gpu::GPU_TARGET

#else

#include "backend/gpu/launch.h"
#include "backend/gpu/ops.h"
#include "ops/attention.h"

namespace ingot::gpu {
namespace {

using ops::Context;

constexpr int64_t max_d = 256;

int64_t warps_of(Context& context) { return 256 / device_of(context).warp_width(); }

bool too_long(const ops::AttentionAttributes& a, ops::Refusal refuse) {
  return a.head_dim > max_d && refuse("head size {} is above {}", a.head_dim, max_d);
}

void run_forward(Context& context, const Tensor& out, const Tensor& lse, const Tensor& q, const Tensor& k,
                 const Tensor& v, const Tensor& offsets, ops::AttentionAttributes attributes) {
  launch(context, of_type(attention, q.dtype), {blocks_of(q.shape[0], warps_of(context)), attributes.heads},
         packed_args(out, lse, q, k, v, offsets, attributes));
}
bool decline_forward(const Context&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                     const Tensor&, ops::AttentionAttributes attributes, ops::Refusal refuse) {
  return too_long(attributes, refuse);
}

void run_backward(Context& context, const Tensor& dq, const Tensor& dk, const Tensor& dv, const Tensor& dout,
                  const ops::AttentionSaved& saved, const Tensor& offsets, ops::AttentionAttributes attributes) {
  PackedAttentionArgs args = packed_args(saved.out, saved.lse, saved.q, saved.k, saved.v, offsets, attributes);
  args.dout = dout.data;
  args.dq = dq.data;
  args.dk = dk.data;
  args.dv = dv.data;
  const int64_t warps = warps_of(context);
  launch(context, of_type(attention_dq, dout.dtype), {blocks_of(args.queries, warps), attributes.heads}, args);
  launch(context, of_type(attention_dkv, dout.dtype), {blocks_of(args.keys, warps), attributes.kv_heads}, args);
}
bool decline_backward(const Context&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                      const ops::AttentionSaved&, const Tensor&, ops::AttentionAttributes attributes,
                      ops::Refusal refuse) {
  return too_long(attributes, refuse);
}

void run_paged(Context& context, const Tensor& out, const Tensor& q, const ops::KvPages& pages,
               const ops::PagedLayout& layout, ops::AttentionAttributes attributes) {
  launch(context, of_type(paged_attention, q.dtype), {blocks_of(q.shape[0], warps_of(context)), attributes.heads},
         paged_args(out, q, pages, layout, attributes));
}
bool decline_paged(const Context&, const Tensor&, const Tensor&, const ops::KvPages&, const ops::PagedLayout&,
                   ops::AttentionAttributes attributes, ops::Refusal refuse) {
  return too_long(attributes, refuse);
}

}  // namespace

void register_attention(ops::Registry& registry, DeviceKind kind) {
  register_vendor_attention(registry, kind);
  // Simulated devices run it by name only: its large blocks are slow for the short sequences of tests.
  if (kind == DeviceKind::cuda) register_attention_sm90(registry, kind);
  register_attention_mma(registry, kind);
  if (kind == DeviceKind::sim) register_attention_sm90(registry, kind);
  register_attention_paged(registry, kind);
  registry.add<ops::Attention>(kind, "simt", run_forward, decline_forward);
  registry.add<ops::AttentionBackward>(kind, "simt", run_backward, decline_backward);
  registry.add<ops::PagedAttention>(kind, "simt", run_paged, decline_paged);
  register_kv_store(registry, kind);
}

}  // namespace ingot::gpu
#endif
