#include "backend/gpu/elementwise/functions.h"

namespace ingot::gpu {

struct SampleArgs {
  int32_t* chosen;
  float* logprobs;
  float* logits;
  const float* scales;
  const int32_t* cuts;
  const uint32_t* masks;
  const int32_t* edit_offsets;
  const int32_t* edit_ids;
  float* edit_values;
  int64_t n;       // the vocabulary; one block per row
  int64_t stride;  // columns of logits
  int64_t words;   // words of a mask
  int columns;     // columns of chosen
};

struct InsertSampledArgs {
  int32_t* ids;
  const int32_t* known;
  const int32_t* chosen;
  int64_t n;        // ids; one thread per id
  int64_t columns;  // columns of chosen
};

}  // namespace ingot::gpu

GPU_KERNEL(sample, SampleArgs, 1024)
GPU_KERNEL(insert_sampled, InsertSampledArgs, 256)

#if GPU_KERNEL_PASS
namespace ingot::gpu::GPU_TARGET {
namespace {

constexpr int threads = 1024;
constexpr int warps = threads / warp_width;

struct SharedStorage {
  uint64_t parts[threads / 32];
  int64_t bins[256];
  uint64_t wanted;  // weight that is still wanted, from the bin of `digit`
  uint64_t in_bin;  // total weight of that bin
  int64_t found;
  uint32_t digit;
  float before;  // the sampled token's logit before its edit, if any
  int edited;
};

GPU_FN uint64_t shuffled(uint64_t value, int mask) {
  const uint64_t high = shuffle_xor(static_cast<uint32_t>(value >> 32), mask);
  return high << 32 | shuffle_xor(static_cast<uint32_t>(value), mask);
}
GPU_FN uint64_t warp_total(uint64_t value) {
  for (int mask = 1; mask < warp_width; mask *= 2) value += shuffled(value, mask);
  return value;
}
GPU_FN uint64_t block_total(uint64_t value, SharedStorage& shared) {
  value = warp_total(value);
  if (lane_index() == 0) shared.parts[warp_index()] = value;
  block_barrier();
  uint64_t sum = 0;
  for (int w = 0; w < warps; ++w) sum += shared.parts[w];
  block_barrier();
  return sum;
}
GPU_FN uint64_t block_largest(uint64_t value, SharedStorage& shared) {
  for (int mask = 1; mask < warp_width; mask *= 2) {
    const uint64_t other = shuffled(value, mask);
    value = other > value ? other : value;
  }
  if (lane_index() == 0) shared.parts[warp_index()] = value;
  block_barrier();
  uint64_t largest = 0;
  for (int w = 0; w < warps; ++w) largest = shared.parts[w] > largest ? shared.parts[w] : largest;
  block_barrier();
  return largest;
}

// The arithmetic of ops/sampling_weight.h.
GPU_FN uint64_t weight_of(float power) {
  if (!(power > -48.0F)) return 0;
  const int64_t fixed = static_cast<int64_t>(power * 0x1p32F);
  const uint64_t fraction = static_cast<uint32_t>(fixed);
  uint64_t series = 437;
  series = 5676 + (fraction * series >> 32);
  series = 65510 + (fraction * series >> 32);
  series = 661577 + (fraction * series >> 32);
  series = 5726720 + (fraction * series >> 32);
  series = 41309550 + (fraction * series >> 32);
  series = 238388332 + (fraction * series >> 32);
  series = 1031764991 + (fraction * series >> 32);
  series = 2977044472 + (fraction * series >> 32);
  const uint64_t mantissa = (uint64_t{1} << 32) + (fraction * series >> 32);
  return (mantissa << 8) >> -(fixed >> 32);
}
GPU_FN uint64_t high_product(uint64_t a, uint64_t b) {
  const uint64_t a0 = a & 0xffffffffU, a1 = a >> 32, b0 = b & 0xffffffffU, b1 = b >> 32;
  const uint64_t middle = a1 * b0 + (a0 * b0 >> 32);
  const uint64_t other = a0 * b1 + (middle & 0xffffffffU);
  return a1 * b1 + (middle >> 32) + (other >> 32);
}

// An integer key that is larger for a larger logit. 0x007fffff for -infinity and for masked tokens.
GPU_FN uint32_t key_of(float logit) {
  const uint32_t bits = bits_of<uint32_t>(logit == 0 ? 0.0F : logit);
  return (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
}
GPU_FN float logit_of(uint32_t key) { return bits_of<float>((key & 0x80000000U) != 0 ? key & 0x7fffffffU : ~key); }
constexpr uint32_t excluded = 0x007fffffU;

struct Row {
  const float* logits;
  const uint32_t* mask;  // may be null
  int64_t n;
  GPU_FN uint32_t key(int64_t i) const {
    if (mask != nullptr && ((mask[i / 32] >> (i % 32)) & 1U) == 0) return excluded;
    return key_of(logits[i]);
  }
};

// The order of selection, largest first: by key; equal keys by lower id.
GPU_FN uint64_t rank_of(uint32_t key, int64_t i) {
  return static_cast<uint64_t>(key) << 32 | (0xffffffffU - static_cast<uint32_t>(i));
}
GPU_FN int32_t id_of(uint64_t rank) { return static_cast<int32_t>(0xffffffffU - static_cast<uint32_t>(rank)); }

GPU_FN uint64_t best_below(const Row& row, uint64_t bound, SharedStorage& shared) {
  uint64_t best = 0;
  for (int64_t i = thread_index(); i < row.n; i += threads) {
    const uint64_t rank = rank_of(row.key(i), i);
    if (rank < bound && rank > best) best = rank;
  }
  return block_largest(best, shared);
}

template <class Weigh>
GPU_FN uint64_t sum_of(const Row& row, SharedStorage& shared, Weigh weigh) {
  uint64_t sum = 0;
  for (int64_t i = thread_index(); i < row.n; i += threads) sum += weigh(row.key(i), i);
  return block_total(sum, shared);
}

// The lowest id at which the cumulative weight, in order of ids, exceeds `target`; the last id if it never does. Each
// warp has a contiguous range of ids; the warp in whose range it happens scans it, one id per lane at a time.
template <class Weigh>
GPU_FN int64_t find_cumulative(const Row& row, SharedStorage& shared, uint64_t target, Weigh weigh) {
  const int64_t ids_per_warp = (row.n + threads - 1) / threads * warp_width;
  const int64_t begin = warp_index() * ids_per_warp;
  const int64_t end = begin + ids_per_warp < row.n ? begin + ids_per_warp : row.n;
  uint64_t sum = 0;
  for (int64_t i = begin + lane_index(); i < end; i += warp_width) sum += weigh(row.key(i), i);
  sum = warp_total(sum);
  if (lane_index() == 0) shared.parts[warp_index()] = sum;
  if (thread_index() == 0) shared.found = row.n - 1;
  block_barrier();
  for (int w = 0; w < warp_index(); ++w) {
    const uint64_t part = shared.parts[w];
    target = target < part ? ~uint64_t{0} : target - part;  // exceeded in an earlier warp: beyond every sum
    if (target == ~uint64_t{0}) break;
  }
  if (target < sum) {
    for (int64_t first = begin; first < end; first += warp_width) {
      const int64_t i = first + lane_index();
      const uint64_t weight = i < end ? weigh(row.key(i), i) : 0;
      uint64_t prefix_sum = weight;  // over the lanes up to this one
      for (int step = 1; step < warp_width; step *= 2) {
        const int from = lane_index() >= step ? lane_index() - step : lane_index();
        const uint64_t high = shuffle(static_cast<uint32_t>(prefix_sum >> 32), from);
        const uint64_t other = high << 32 | shuffle(static_cast<uint32_t>(prefix_sum), from);
        if (lane_index() >= step) prefix_sum += other;
      }
      if (target < prefix_sum && target >= prefix_sum - weight) shared.found = i;
      const uint64_t high = shuffle(static_cast<uint32_t>(prefix_sum >> 32), warp_width - 1);
      const uint64_t all = high << 32 | shuffle(static_cast<uint32_t>(prefix_sum), warp_width - 1);
      if (target < all) break;
      target -= all;
    }
  }
  block_barrier();
  const int64_t found = shared.found;
  block_barrier();
  return found;
}

// The tokens that top-k and top-p keep: those of all ranks from the largest down to `last`.
struct KeptTokens {
  uint64_t last;
  GPU_FN bool has(uint32_t key, int64_t i) const { return rank_of(key, i) >= last; }
};

// Keeps as few of the largest ranks as have a total weight of at least `wanted`, which must not exceed the weight of
// all. A radix select, 8 bits of the key at a time. Tokens of equal key have equal weights, except those of weight 0,
// which have the lower ranks.
template <class Weigh>
GPU_FN KeptTokens keep_largest(const Row& row, SharedStorage& shared, uint64_t wanted, Weigh weigh) {
  uint32_t known_bits = 0;
  uint32_t key = 0;
  uint64_t in_bin = 0;
  for (int shift = 24; shift >= 0; shift -= 8) {
    for (int b = thread_index(); b < 256; b += threads) shared.bins[b] = 0;
    block_barrier();
    for (int64_t i = thread_index(); i < row.n; i += threads) {
      const uint32_t key_of_i = row.key(i);
      if ((key_of_i & known_bits) != key) continue;
      const uint64_t weight = weigh(key_of_i, i);
      if (weight > 0) atomic_add(&shared.bins[(key_of_i >> shift) & 255U], static_cast<int64_t>(weight));
    }
    block_barrier();
    if (thread_index() < 256) {
      uint64_t above = 0;
      for (int b = 255; b > thread_index(); --b) above += static_cast<uint64_t>(shared.bins[b]);
      const uint64_t here = static_cast<uint64_t>(shared.bins[thread_index()]);
      if (above < wanted && above + here >= wanted) {
        shared.digit = static_cast<uint32_t>(thread_index());
        shared.wanted = wanted - above;
        shared.in_bin = here;
      }
    }
    block_barrier();
    wanted = shared.wanted;
    in_bin = shared.in_bin;
    key |= shared.digit << shift;
    known_bits |= 255U << shift;
    block_barrier();
  }
  if (wanted == in_bin) return {static_cast<uint64_t>(key) << 32};
  const int64_t last = find_cumulative(
      row, shared, wanted - 1, [&](uint32_t other, int64_t i) { return other == key ? weigh(other, i) : uint64_t{0}; });
  return {rank_of(key, last)};
}

GPU_FN int32_t draw(const SampleArgs& a, const Row& row, SharedStorage& shared, float highest) {
  const int64_t r = block_index();
  const float scale = a.scales[r * 2];
  const float min_power = a.scales[r * 2 + 1];
  const int32_t* cuts = a.cuts + r * 5;
  const auto weight = [&](uint32_t key) { return weight_of((logit_of(key) - highest) * scale); };
  KeptTokens kept = {static_cast<uint64_t>(excluded + 1) << 32};
  if (cuts[0] > 0) {
    const auto one = [&](uint32_t key, int64_t) { return static_cast<uint64_t>(key > excluded); };
    if (sum_of(row, shared, one) > static_cast<uint64_t>(cuts[0])) {
      kept = keep_largest(row, shared, static_cast<uint64_t>(cuts[0]), one);
    }
  }
  if (cuts[1] != 0) {
    const auto weigh = [&](uint32_t key, int64_t i) { return kept.has(key, i) ? weight(key) : 0; };
    const uint64_t total = sum_of(row, shared, weigh);
    const uint64_t part = static_cast<uint32_t>(cuts[1]);
    const uint64_t wanted = (total >> 32) * part + ((total & 0xffffffffU) * part >> 32);
    const KeptTokens fewer = keep_largest(row, shared, wanted > 0 ? wanted : 1, weigh);
    if (fewer.last > kept.last) kept = fewer;
  }
  const auto weigh = [&](uint32_t key, int64_t i) {
    const float power = (logit_of(key) - highest) * scale;
    return kept.has(key, i) && power >= min_power ? weight_of(power) : 0;
  };
  const uint64_t random = static_cast<uint32_t>(cuts[2]) | static_cast<uint64_t>(static_cast<uint32_t>(cuts[3])) << 32;
  const uint64_t total = sum_of(row, shared, weigh);
  return static_cast<int32_t>(find_cumulative(row, shared, high_product(random, total), weigh));
}

}  // namespace

GPU_KERNEL_BODY(sample, SampleArgs) {
  GPU_SHARED(SharedStorage, shared);
  const int64_t r = block_index();
  float* logits = a.logits + r * a.stride;
  int32_t* chosen = a.chosen + r * a.columns;
  float* logprobs = a.logprobs + r * a.columns;
  const int32_t mask = a.cuts[r * 5 + 4];
  const Row unmasked = {logits, nullptr, a.n};
  const Row row = {logits, mask < 0 ? nullptr : a.masks + mask * a.words, a.n};

  // Counts +infinity and NaN by value, not by key: a NaN with the sign bit set has a key below that of -infinity.
  uint64_t num_invalid = 0;
  for (int64_t i = thread_index(); i < a.n; i += threads) num_invalid += !(logits[i] < bits_of<float>(0x7f800000));
  num_invalid = block_total(num_invalid, shared);
  const uint64_t first = best_below(unmasked, ~uint64_t{0}, shared);
  const float max_logit = logit_of(static_cast<uint32_t>(first >> 32));
  if (num_invalid > 0 || first >> 32 <= excluded) {
    if (thread_index() == 0) {
      chosen[0] = num_invalid > 0 ? -1 : -2;
      logprobs[0] = 0;
    }
    return;
  }
  const auto exp_weight = [&](uint32_t key, int64_t) { return weight_of((logit_of(key) - max_logit) * 0x1.715476p0F); };
  const float log_total = logarithm(static_cast<float>(sum_of(unmasked, shared, exp_weight)) * 0x1p-40F);
  uint64_t bound = first;
  for (int c = 1; c < a.columns; ++c) {
    if (c > 1) bound = best_below(unmasked, bound, shared);
    if (thread_index() == 0) {
      chosen[c] = id_of(bound);
      logprobs[c] = logit_of(static_cast<uint32_t>(bound >> 32)) - max_logit - log_total;
    }
  }

  block_barrier();
  const int edits_begin = a.edit_offsets[r];
  const int edits_end = a.edit_offsets[r + 1];
  for (int e = edits_begin + thread_index(); e < edits_end; e += threads) {
    float* edit = a.edit_values + int64_t{3} * e;
    const float logit = logits[a.edit_ids[e]];
    const float scaled = logit * (logit > 0 ? edit[0] : edit[1]);
    logits[a.edit_ids[e]] = scaled + edit[2];
    edit[0] = logit;
  }
  if (thread_index() == 0) shared.edited = 0;
  block_barrier();
  const uint64_t best = best_below(row, ~uint64_t{0}, shared);
  const float highest = logit_of(static_cast<uint32_t>(best >> 32));
  if (best >> 32 <= excluded) {
    if (thread_index() == 0) {
      chosen[0] = -2;
      logprobs[0] = 0;
    }
    return;
  }
  const int32_t id = a.scales[r * 2] == 0 ? id_of(best) : draw(a, row, shared, highest);
  for (int e = edits_begin + thread_index(); e < edits_end; e += threads) {
    if (a.edit_ids[e] == id) {
      shared.before = a.edit_values[int64_t{3} * e];
      shared.edited = 1;
    }
  }
  block_barrier();
  if (thread_index() == 0) {
    chosen[0] = id;
    const float logit =
        logits[id];  // read in any case, to avoid a flat load, for which tools/emulate_amd.py has no address
    logprobs[0] = (shared.edited != 0 ? shared.before : logit) - max_logit - log_total;
  }
}

GPU_KERNEL_BODY(insert_sampled, InsertSampledArgs) {
  const int64_t t = static_cast<int64_t>(block_index()) * 256 + thread_index();
  if (t >= a.n) return;
  const int64_t known = a.known[t];
  const int32_t id = known < 0 ? a.chosen[(-1 - known) * a.columns] : static_cast<int32_t>(known);
  a.ids[t] = id < 0 ? 0 : id;
}

}  // namespace ingot::gpu::GPU_TARGET

#else

#include "backend/gpu/launch.h"
#include "backend/gpu/ops.h"
#include "ops/sampling.h"

namespace ingot::gpu {
namespace {

void run(ops::Context& context, const Tensor& chosen, const Tensor& logprobs, const Tensor& logits,
         const ops::SamplingRows& rows) {
  SampleArgs args = {};
  args.chosen = chosen.as<int32_t>();
  args.logprobs = logprobs.as<float>();
  args.logits = logits.as<float>();
  args.scales = rows.scales.as<float>();
  args.cuts = rows.cuts.as<int32_t>();
  if (rows.masks) {
    args.masks = reinterpret_cast<const uint32_t*>(rows.masks.as<int32_t>());
    args.words = rows.masks.shape[1];
  }
  args.edit_offsets = rows.edit_offsets.as<int32_t>();
  if (rows.edit_ids) {
    args.edit_ids = rows.edit_ids.as<int32_t>();
    args.edit_values = rows.edit_values.as<float>();
  }
  args.n = rows.vocabulary_of(logits);
  args.stride = logits.shape[1];
  args.columns = static_cast<int>(chosen.shape[1]);
  launch(context, sample, {logits.shape[0]}, args);
}

void run_insert(ops::Context& context, const Tensor& ids, const Tensor& known, const Tensor& chosen) {
  launch(context, insert_sampled, {blocks_of(ids.shape[0], 256)},
         {ids.as<int32_t>(), known.as<int32_t>(), chosen.as<int32_t>(), ids.shape[0], chosen.shape[1]});
}

}  // namespace

void register_sampling(ops::Registry& registry, DeviceKind kind) {
  registry.add<ops::Sample>(kind, "simt", run);
  registry.add<ops::InsertSampled>(kind, "simt", run_insert);
}

}  // namespace ingot::gpu
#endif
