#include "backend/gpu/elementwise/functions.h"
#include "backend/gpu/rows.h"

namespace ingot::gpu {

struct RouteArgs {
  int32_t* experts;
  float* weights;
  const void* logits;
  int64_t tokens;
  int num_experts;
  int top_k;  // experts per token
};

struct RouteBackwardArgs {
  void* dlogits;
  const float* dweights;
  const int32_t* experts;
  const float* weights;
  int64_t n;  // tokens x num_experts
  int num_experts;
  int top_k;  // experts per token
};

struct GroupArgs {
  int32_t* token_of_row;
  int32_t* row_of_choice;
  int32_t* offsets;
  const int32_t* experts;
  int64_t n;  // choices (token, expert)
  int num_experts;
  int top_k;  // experts per token
};

// One block per row of y.
struct GatherArgs {
  void* y;
  const void* x;
  const int32_t* token_of_row;
  int64_t tokens;
  int64_t n;  // features
};

// One block per row of y.
struct CombineArgs {
  void* y;
  const void* z;
  const int32_t* row_of_choice;
  const float* weights;  // may be null
  int64_t num_grouped_rows;
  int64_t n;  // features
  int top_k;  // experts per token
  bool accumulate;
};

// One block per choice.
struct CombineBackwardArgs {
  void* dz;
  float* dweights;  // may be null; then z may be null, too
  const void* dy;
  const void* z;
  const int32_t* row_of_choice;
  const float* weights;
  int64_t num_grouped_rows;
  int64_t n;  // features
  int top_k;  // experts per token
};

}  // namespace ingot::gpu

GPU_KERNEL_FORWARD_TYPES(moe_route, RouteArgs, 256)
GPU_KERNEL_TYPES(moe_route_backward, RouteBackwardArgs, 256)
GPU_KERNEL(moe_group, GroupArgs, 256)
GPU_KERNEL_FORWARD_PACKS(gather_rows, GatherArgs, 256)
GPU_KERNEL_FORWARD_PACKS(combine_rows, CombineArgs, 256)
GPU_KERNEL_PACKS(combine_rows_backward, CombineBackwardArgs, 256)

#if GPU_KERNEL_PASS
namespace ingot::gpu::GPU_TARGET {
namespace {

constexpr int warps = 256 / warp_width;

// A sort key: the expert with the largest key is selected first. Keys are ordered by logit, with NaN above all numbers;
// of equal logits the lower expert has the larger key. No key is 0 or all ones.
GPU_FN uint64_t rank_of(float logit, int expert) {
  uint32_t key = bits_of<uint32_t>(logit == 0 ? 0.0F : logit);
  key = (key & 0x80000000U) != 0 ? ~key : key | 0x80000000U;
  if (logit != logit) key = 0xffffffffU;
  return static_cast<uint64_t>(key) << 32 | (0xfffffffeU - static_cast<uint32_t>(expert));
}
GPU_FN int expert_of(uint64_t rank) { return static_cast<int>(0xfffffffeU - static_cast<uint32_t>(rank)); }

GPU_FN uint64_t warp_largest(uint64_t value) {
  for (int mask = 1; mask < warp_width; mask *= 2) {
    const uint64_t high = shuffle_xor(static_cast<uint32_t>(value >> 32), mask);
    const uint64_t other = high << 32 | shuffle_xor(static_cast<uint32_t>(value), mask);
    value = other > value ? other : value;
  }
  return value;
}

// One warp per token. Round c selects the largest rank below that of round c - 1. Lane c % warp_width writes choice c
// and later normalises its weight.
template <class T>
GPU_FN void route(const RouteArgs& a) {
  const int64_t token = static_cast<int64_t>(block_index()) * warps + warp_index();
  if (token >= a.tokens) return;
  const T* logits = static_cast<const T*>(a.logits) + token * a.num_experts;
  uint64_t bound = ~uint64_t{0};
  float max_logit = 0;
  float sum = 0;
  for (int c = 0; c < a.top_k; ++c) {
    uint64_t best = 0;
    for (int e = lane_index(); e < a.num_experts; e += warp_width) {
      const uint64_t rank = rank_of(to_float(logits[e]), e);
      if (rank < bound && rank > best) best = rank;
    }
    bound = warp_largest(best);
    const int expert = expert_of(bound);
    const float logit = to_float(logits[expert]);
    if (c == 0) max_logit = logit;
    const float weight = exponential(logit - max_logit);
    sum += weight;
    if (c % warp_width == lane_index()) {
      a.experts[token * a.top_k + c] = expert;
      a.weights[token * a.top_k + c] = weight;
    }
  }
  for (int c = lane_index(); c < a.top_k; c += warp_width) a.weights[token * a.top_k + c] /= sum;
}

// One thread per logit.
template <class T>
GPU_FN void route_gradient(const RouteBackwardArgs& a) {
  const int64_t at = first_element<1>();
  if (at >= a.n) return;
  const int64_t first = at / a.num_experts * a.top_k;
  const auto expert = static_cast<int>(at % a.num_experts);
  float mean = 0;
  for (int c = 0; c < a.top_k; ++c) mean = fma(a.weights[first + c], a.dweights[first + c], mean);
  float gradient = 0;
  for (int c = 0; c < a.top_k; ++c) {
    if (a.experts[first + c] == expert) gradient = a.weights[first + c] * (a.dweights[first + c] - mean);
  }
  static_cast<T*>(a.dlogits)[at] = from_float<T>(gradient);
}

struct GroupStorage {
  int lower[8];  // per warp: its choices of lower experts than the block's
  int same[8];   // per warp: its choices of the block's expert
};

// One block per expert, and a last one that only writes offsets[num_experts], the number of choices. Each warp handles
// a contiguous range of the choices: it counts them, then assigns grouped rows to those of the block's expert.
GPU_FN void group(const GroupArgs& a) {
  GPU_SHARED(GroupStorage, shared);
  const int expert = block_index();
  const int last = a.num_experts - 1;
  const int64_t choices_per_warp = (a.n + 256 - 1) / 256 * warp_width;
  const int64_t begin = warp_index() * choices_per_warp;
  const int64_t end = begin + choices_per_warp < a.n ? begin + choices_per_warp : a.n;
  const auto expert_at = [&](int64_t i) {  // indices out of range count as the nearest expert
    const int chosen_expert = a.experts[i];
    return chosen_expert < 0 ? 0 : chosen_expert > last ? last : chosen_expert;
  };
  int lower = 0;
  int same = 0;
  for (int64_t i = begin; i < end; i += warp_width) {
    const int64_t choice = i + lane_index();
    const int chosen_expert = choice < end ? expert_at(choice) : a.num_experts + 1;
    lower += count_bits(warp_ballot(chosen_expert < expert));
    same += count_bits(warp_ballot(chosen_expert == expert));
  }
  if (lane_index() == 0) {
    shared.lower[warp_index()] = lower;
    shared.same[warp_index()] = same;
  }
  block_barrier();
  int next = 0;
  for (int w = 0; w < warps; ++w) next += shared.lower[w];
  if (thread_index() == 0) a.offsets[expert] = next;
  if (expert > last) return;
  for (int w = 0; w < warp_index(); ++w) next += shared.same[w];
  for (int64_t i = begin; i < end; i += warp_width) {
    const int64_t choice = i + lane_index();
    const bool is_same = choice < end && expert_at(choice) == expert;
    const uint64_t all = warp_ballot(is_same);
    if (is_same) {
      const int grouped_row = next + count_bits(all & ((uint64_t{1} << lane_index()) - 1));
      a.row_of_choice[choice] = grouped_row;
      a.token_of_row[grouped_row] = static_cast<int32_t>(choice / a.top_k);
    }
    next += count_bits(all);
  }
}

// Row `index` of `rows` [count, n]; its elements are NaN if the index is out of range.
template <class T>
GPU_FN OptionalRow<T> row_or_nan(const void* rows, int64_t index, int64_t count, int64_t n) {
  return {static_cast<const T*>(rows) + index * n, index >= 0 && index < count, not_a_number()};
}

template <class T, int V>
GPU_FN void gather(const GatherArgs& a) {
  T* y = static_cast<T*>(a.y) + block_index() * a.n;
  const auto x = row_or_nan<T>(a.x, a.token_of_row[block_index()], a.tokens, a.n);
  map_row<V>(a.n, y, [](float value) { return value; }, x);
}

template <class T, int V>
GPU_FN void combine(const CombineArgs& a) {
  T* y = static_cast<T*>(a.y) + block_index() * a.n;
  const int64_t first = static_cast<int64_t>(block_index()) * a.top_k;
  for (int64_t j = thread_index() * V; j < a.n; j += row_threads * V) {
    Floats<V> total{};
    if (a.accumulate) total = load_floats<V>(y + j);
    for (int c = 0; c < a.top_k; ++c) {
      const auto row = row_part<V>(row_or_nan<T>(a.z, a.row_of_choice[first + c], a.num_grouped_rows, a.n), j);
      const float weight = a.weights == nullptr ? 1.0F : a.weights[first + c];
      for (int i = 0; i < V; ++i) total.at[i] = fma(weight, row.at[i], total.at[i]);
    }
    store_floats(y + j, total);
  }
}

// dz is not written for an entry of `places` that is out of range.
template <class T, int V>
GPU_FN void combine_gradient(const CombineBackwardArgs& a) {
  GPU_SHARED(RowStorage, shared);
  const int64_t choice = block_index();
  const T* dy = static_cast<const T*>(a.dy) + choice / a.top_k * a.n;
  const int64_t grouped_row = a.row_of_choice[choice];
  if (a.dweights != nullptr) {  // must come first: dz may be z
    const auto add = [](float sum, float of_dy, float of_z) { return fma(of_dy, of_z, sum); };
    const float product = sum_of_row<V>(a.n, shared, add, dy, row_or_nan<T>(a.z, grouped_row, a.num_grouped_rows, a.n));
    if (thread_index() == 0) a.dweights[choice] = product;
  }
  if (grouped_row < 0 || grouped_row >= a.num_grouped_rows) return;
  T* dz = static_cast<T*>(a.dz) + grouped_row * a.n;
  map_row<V>(a.n, dz, [weight = a.weights[choice]](float value) { return value * weight; }, dy);
}

}  // namespace

GPU_KERNEL_BODY_FORWARD_TYPES(moe_route, RouteArgs, route)
GPU_KERNEL_BODY_TYPES(moe_route_backward, RouteBackwardArgs, route_gradient)
GPU_KERNEL_BODY(moe_group, GroupArgs) { group(a); }
GPU_KERNEL_BODY_FORWARD_PACKS(gather_rows, GatherArgs, gather)
GPU_KERNEL_BODY_FORWARD_PACKS(combine_rows, CombineArgs, combine)
GPU_KERNEL_BODY_PACKS(combine_rows_backward, CombineBackwardArgs, combine_gradient)

}  // namespace ingot::gpu::GPU_TARGET

#else

#include "backend/gpu/ops.h"
#include "ops/moe.h"

namespace ingot::gpu {
namespace {

using ops::Context;

void run_route(Context& context, const Tensor& experts, const Tensor& weights, const Tensor& logits) {
  const int64_t tokens = logits.shape[0];
  launch(context, of_type(moe_route, logits.dtype), {blocks_of(tokens, 256 / device_of(context).warp_width())},
         {experts.as<int32_t>(), weights.as<float>(), logits.data, tokens, static_cast<int>(logits.shape[1]),
          static_cast<int>(experts.shape[1])});
}

void run_route_backward(Context& context, const Tensor& dlogits, const Tensor& dweights, const Tensor& experts,
                        const Tensor& weights) {
  const int64_t n = dlogits.elements();
  launch(context, of_type(moe_route_backward, dlogits.dtype), {blocks_of(n, 256)},
         {dlogits.data, dweights.as<float>(), experts.as<int32_t>(), weights.as<float>(), n,
          static_cast<int>(dlogits.shape[1]), static_cast<int>(experts.shape[1])});
}

void run_group(Context& context, const Tensor& token_of_row, const Tensor& row_of_choice, const Tensor& offsets,
               const Tensor& experts) {
  const int64_t count = offsets.shape[0];
  launch(context, moe_group, {count},
         {token_of_row.as<int32_t>(), row_of_choice.as<int32_t>(), offsets.as<int32_t>(), experts.as<int32_t>(),
          experts.elements(), static_cast<int>(count - 1), static_cast<int>(experts.shape[1])});
}

void run_gather(Context& context, const Tensor& y, const Tensor& x, const Tensor& token_of_row) {
  const int64_t n = x.shape[1];
  launch(context, of_rows(gather_rows, n, {y, x}), {token_of_row.shape[0]},
         {y.data, x.data, token_of_row.as<int32_t>(), x.shape[0], n});
}

void run_combine(Context& context, const Tensor& y, const Tensor& z, const Tensor& row_of_choice, const Tensor& weights,
                 bool accumulate) {
  const int64_t n = y.shape[1];
  launch(context, of_rows(combine_rows, n, {y, z}), {y.shape[0]},
         {y.data, z.data, row_of_choice.as<int32_t>(), weights ? weights.as<float>() : nullptr, z.shape[0], n,
          static_cast<int>(row_of_choice.shape[1]), accumulate});
}

void run_combine_backward(Context& context, const Tensor& dz, const Tensor& dweights, const Tensor& dy, const Tensor& z,
                          const Tensor& row_of_choice, const Tensor& weights) {
  const int64_t n = dy.shape[1];
  const CombineBackwardArgs args{dz.data,
                                 dweights ? dweights.as<float>() : nullptr,
                                 dy.data,
                                 z.data,
                                 row_of_choice.as<int32_t>(),
                                 weights.as<float>(),
                                 dz.shape[0],
                                 n,
                                 static_cast<int>(row_of_choice.shape[1])};
  launch(context, of_rows(combine_rows_backward, n, {dz, dy, z}), {row_of_choice.elements()}, args);
}

}  // namespace

void register_moe(ops::Registry& registry, DeviceKind kind) {
  registry.add<ops::MoeRoute>(kind, "simt", run_route);
  registry.add<ops::MoeRouteBackward>(kind, "simt", run_route_backward);
  registry.add<ops::MoeGroup>(kind, "simt", run_group);
  registry.add<ops::GatherRows>(kind, "simt", run_gather);
  registry.add<ops::CombineRows>(kind, "simt", run_combine);
  registry.add<ops::CombineRowsBackward>(kind, "simt", run_combine_backward);
}

}  // namespace ingot::gpu
#endif
