#include "ops/sampling.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "backend/cpu/glue.h"
#include "backend/cpu/ops.h"
#include "backend/cpu/simd/sampling.h"
#include "ops/sampling_weight.h"

namespace ingot::cpu {
namespace {

constexpr float excluded = -std::numeric_limits<float>::infinity();

// A row's settings, and where its logits and results are.
struct Row {
  float* logits;
  int64_t width;
  float scale, least;
  int64_t top_k;
  uint64_t top_p;  // of 2^32; 0: all
  uint64_t random;
  const uint32_t* mask;  // may be null
  const int32_t* edit_ids;
  const float* edit_values;
  int64_t edits;
  int32_t* chosen;
  float* logprobs;
  int64_t num_top;
};

// Larger for a larger logit.
uint32_t key_of(float logit) {
  const uint32_t bits = std::bit_cast<uint32_t>(logit == 0 ? 0.0F : logit);
  return (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
}

struct Candidate {
  uint32_t key;
  int32_t id;
  uint64_t weight;
};

bool likelier(const Candidate& a, const Candidate& b) { return a.key != b.key ? a.key > b.key : a.id < b.id; }

// The candidate, in descending order of likelihood, at which the sum of weights (or the count, if not `by_weight`)
// reaches `wanted`. One pass over all candidates finds the range of keys in which that happens, and only that range is
// sorted.
Candidate last_kept(const std::vector<Candidate>& candidates, bool by_weight, uint64_t wanted) {
  constexpr int shift = 20;
  std::vector<uint64_t> parts(uint32_t{1} << (32 - shift));
  for (const Candidate& c : candidates) parts[c.key >> shift] += by_weight ? c.weight : 1;
  uint64_t reached = 0;
  size_t part = parts.size() - 1;
  while (part > 0 && reached + parts[part] < wanted) reached += parts[part--];
  std::vector<Candidate> inside;
  for (const Candidate& c : candidates) {
    if (c.key >> shift == part) inside.push_back(c);
  }
  std::sort(inside.begin(), inside.end(), likelier);
  for (const Candidate& c : inside) {
    reached += by_weight ? c.weight : 1;
    if (reached >= wanted) return c;
  }
  return inside.back();
}

void cut_after(std::vector<Candidate>& candidates, const Candidate& last) {
  std::erase_if(candidates, [&](const Candidate& c) { return likelier(last, c); });
}

// Samples from the candidates, which are in the order of ids.
int32_t draw(const Row& row, std::vector<Candidate> candidates, float highest) {
  const auto sum = [&] {
    uint64_t total = 0;
    for (const Candidate& c : candidates) total += c.weight;
    return total;
  };
  if (row.top_k > 0 && row.top_k < std::ssize(candidates)) {
    cut_after(candidates, last_kept(candidates, false, static_cast<uint64_t>(row.top_k)));
  }
  if (row.top_p > 0) {
    cut_after(candidates, last_kept(candidates, true, std::max<uint64_t>(1, ops::scaled_fraction(sum(), row.top_p))));
  }
  if (row.least > excluded) {
    std::erase_if(candidates, [&](const Candidate& c) { return (row.logits[c.id] - highest) * row.scale < row.least; });
  }
  uint64_t left = ops::multiply_high(row.random, sum());
  for (const Candidate& c : candidates) {
    if (left < c.weight) return c.id;
    left -= c.weight;
  }
  return candidates.back().id;
}

int32_t draw_of_all(const Row& row, const std::vector<uint64_t>& weights, uint64_t total) {
  uint64_t left = ops::multiply_high(row.random, total);
  size_t id = 0;
  while (id + 1 < weights.size() && left >= weights[id]) left -= weights[id++];
  return static_cast<int32_t>(id);
}

template <const SamplingKernels& K>
int32_t draw_of(const Row& row, float highest) {
  std::vector<uint64_t> weights(static_cast<size_t>(row.width));
  const uint64_t total = K.weigh(row.logits, row.width, highest, row.scale, weights.data());
  if (row.top_k == 0 && row.top_p == 0 && !(row.least > excluded)) return draw_of_all(row, weights, total);
  std::vector<Candidate> candidates;
  candidates.reserve(weights.size());
  for (int32_t id = 0; id < row.width; ++id) {
    if (row.logits[id] > excluded) candidates.push_back({key_of(row.logits[id]), id, weights[static_cast<size_t>(id)]});
  }
  return draw(row, std::move(candidates), highest);
}

// Writes the most likely tokens, with a sorted list that few logits enter.
void write_likeliest(const Row& row, double total) {
  std::vector<Candidate> best;
  for (int32_t id = 0; id < row.width; ++id) {
    const Candidate candidate{key_of(row.logits[id]), id, 0};
    if (std::ssize(best) == row.num_top) {
      if (candidate.key <= best.back().key) continue;
      best.pop_back();
    }
    best.insert(std::upper_bound(best.begin(), best.end(), candidate, likelier), candidate);
  }
  for (size_t i = 0; i < best.size(); ++i) {
    row.chosen[1 + i] = best[i].id;
    row.logprobs[1 + i] = static_cast<float>(static_cast<double>(row.logits[best[i].id]) - total);
  }
}

void exclude(const Row& row) {
  for (int64_t word = 0; word * 32 < row.width; ++word) {
    const uint32_t bits = row.mask[word];
    if (bits == ~0U) continue;
    for (int64_t i = word * 32; i < std::min(row.width, word * 32 + 32); ++i) {
      if (((bits >> (i % 32)) & 1U) == 0) row.logits[i] = excluded;
    }
  }
}

template <const SamplingKernels& K>
void choose(const Row& row) {
  bool good = false;
  const float top = K.largest(row.logits, row.width, &good);
  if (!good || top == excluded) {
    row.chosen[0] = good ? -2 : -1;
    row.logprobs[0] = 0;
    return;
  }
  const double total = static_cast<double>(top) + std::log(K.sum_exp(row.logits, row.width, top));
  if (row.num_top > 0) write_likeliest(row, total);
  std::vector<float> before(static_cast<size_t>(row.edits));
  for (int64_t e = 0; e < row.edits; ++e) {
    float& logit = row.logits[row.edit_ids[e]];
    before[static_cast<size_t>(e)] = logit;
    const float scaled = logit * row.edit_values[e * 3 + (logit > 0 ? 0 : 1)];
    logit = scaled + row.edit_values[e * 3 + 2];
  }
  if (row.mask != nullptr) exclude(row);
  const bool changed = row.edits > 0 || row.mask != nullptr;
  const float highest = changed ? K.largest(row.logits, row.width, &good) : top;
  int32_t id = -2;
  if (highest > excluded) {
    id = row.scale == 0 ? static_cast<int32_t>(K.first_of(row.logits, row.width, highest)) : draw_of<K>(row, highest);
  }
  row.chosen[0] = id;
  row.logprobs[0] = 0;
  if (id < 0) return;
  const int32_t* edit = std::find(row.edit_ids, row.edit_ids + row.edits, id);
  const float logit =
      edit == row.edit_ids + row.edits ? row.logits[id] : before[static_cast<size_t>(edit - row.edit_ids)];
  row.logprobs[0] = static_cast<float>(static_cast<double>(logit) - total);
}

Row row_of(const Tensor& chosen, const Tensor& logprobs, const Tensor& logits, const ops::SamplingRows& rows,
           int64_t r) {
  const int32_t* cuts = rows.cuts.as<int32_t>() + r * 5;
  const int32_t* offsets = rows.edit_offsets.as<int32_t>() + r;
  Row row{};
  row.width = rows.vocabulary_of(logits);
  row.logits = logits.as<float>() + r * logits.shape[1];
  row.scale = rows.scales.as<float>()[r * 2];
  row.least = rows.scales.as<float>()[r * 2 + 1];
  row.top_k = cuts[0];
  row.top_p = static_cast<uint32_t>(cuts[1]);
  row.random = static_cast<uint32_t>(cuts[2]) | static_cast<uint64_t>(static_cast<uint32_t>(cuts[3])) << 32;
  if (cuts[4] >= 0) {
    row.mask = reinterpret_cast<const uint32_t*>(rows.masks.as<int32_t>()) + cuts[4] * rows.masks.shape[1];
  }
  row.edits = offsets[1] - offsets[0];
  if (row.edits > 0) {
    row.edit_ids = rows.edit_ids.as<int32_t>() + offsets[0];
    row.edit_values = rows.edit_values.as<float>() + int64_t{3} * offsets[0];
  }
  row.num_top = chosen.shape[1] - 1;
  row.chosen = chosen.as<int32_t>() + r * chosen.shape[1];
  row.logprobs = logprobs.as<float>() + r * chosen.shape[1];
  return row;
}

template <const SamplingKernels& K>
void run(ops::Context& context, const Tensor& chosen, const Tensor& logprobs, const Tensor& logits,
         const ops::SamplingRows& rows) {
  context.threads->parallel_for(0, logits.shape[0], row_grain(logits.shape[1]), [&](int64_t lo, int64_t hi) {
    for (int64_t r = lo; r < hi; ++r) choose<K>(row_of(chosen, logprobs, logits, rows, r));
  });
}

void run_insert(ops::Context&, const Tensor& ids, const Tensor& known, const Tensor& chosen) {
  for (int64_t t = 0; t < ids.shape[0]; ++t) {
    int32_t id = known.as<int32_t>()[t];
    if (id < 0) id = std::max(0, chosen.as<int32_t>()[(int64_t{-1} - id) * chosen.shape[1]]);
    ids.as<int32_t>()[t] = id;
  }
}

}  // namespace

void register_sampling(ops::Registry& registry, Levels levels) {
  INGOT_ADD_LEVELS(registry, levels.best, ops::Sample, run, sampling_kernels);
  registry.add<ops::InsertSampled>(DeviceKind::cpu, "reference", run_insert);
}

}  // namespace ingot::cpu
