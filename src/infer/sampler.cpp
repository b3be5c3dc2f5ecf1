#include "infer/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numbers>

#include "base/error.h"
#include "base/philox.h"
#include "ops/sampling_weight.h"

namespace ingot::infer {

namespace {

constexpr float excluded = -std::numeric_limits<float>::infinity();

double log_sum_exp(std::span<const float> logits, float highest) {
  double sum = 0;
  for (float logit : logits) sum += std::exp(static_cast<double>(logit) - static_cast<double>(highest));
  return static_cast<double>(highest) + std::log(sum);
}

bool allows(std::span<const uint32_t> bits, size_t id) { return bits.empty() || ((bits[id / 32] >> (id % 32)) & 1U); }

// Logits after the edits, with disallowed tokens set to `excluded`.
std::vector<float> edited(std::span<const float> logits, const SamplingParams& sampling, const SamplingContext& past) {
  std::vector<float> changed(logits.begin(), logits.end());
  for (const LogitEdit& edit : logit_edits(sampling, TokenCounts(past.ids, past.prompt))) {
    if (edit.id < 0 || static_cast<size_t>(edit.id) >= changed.size()) continue;
    float& logit = changed[static_cast<size_t>(edit.id)];
    const float scaled = logit * (logit > 0 ? edit.positive : edit.negative);
    logit = scaled + edit.add;
  }
  for (size_t id = 0; id < changed.size(); ++id) {
    if (!allows(past.allowed, id)) changed[id] = excluded;
  }
  return changed;
}

struct Candidate {
  int32_t id;
  float power;  // log2 of its probability relative to the most likely one's
  uint64_t weight;
};

uint64_t sum_of(const std::vector<Candidate>& candidates) {
  uint64_t sum = 0;
  for (const Candidate& c : candidates) sum += c.weight;
  return sum;
}

// Cuts the candidates, sorted by probability, down to those that top_k, top_p and min_p leave.
void filter(std::vector<Candidate>& candidates, const SamplingParams& sampling) {
  if (sampling.top_k > 0 && static_cast<size_t>(sampling.top_k) < candidates.size()) {
    candidates.resize(static_cast<size_t>(sampling.top_k));
  }
  if (sampling.top_p < 1) {
    const uint64_t part = static_cast<uint64_t>(std::ceil(sampling.top_p * 0x1p32));
    const uint64_t wanted = std::max<uint64_t>(1, ops::scaled_fraction(sum_of(candidates), part));
    uint64_t reached = 0;
    size_t size = 0;
    while (size < candidates.size() && reached < wanted) reached += candidates[size++].weight;
    candidates.resize(size);
  }
  if (sampling.min_p > 0) {
    const auto min_power = static_cast<float>(std::log2(sampling.min_p));
    while (candidates.back().power < min_power) candidates.pop_back();
  }
}

}  // namespace

float power_scale(double temperature) { return static_cast<float>(std::min(std::numbers::log2e / temperature, 1e30)); }

namespace {

int32_t draw(const std::vector<float>& logits, const SamplingParams& sampling, int64_t position) {
  const float highest = *std::max_element(logits.begin(), logits.end());
  const float scale = power_scale(sampling.temperature);
  std::vector<Candidate> candidates;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] == excluded) continue;
    const float power = (logits[i] - highest) * scale;
    candidates.push_back({static_cast<int32_t>(i), power, ops::sampling_weight(power)});
  }
  std::sort(candidates.begin(), candidates.end(), [&](const Candidate& a, const Candidate& b) {
    const float x = logits[static_cast<size_t>(a.id)], y = logits[static_cast<size_t>(b.id)];
    return x != y ? x > y : a.id < b.id;
  });
  filter(candidates, sampling);
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
  const uint64_t target = ops::multiply_high(RandomStream(sampling.seed, position).next_u64(), sum_of(candidates));
  uint64_t reached = 0;
  for (const Candidate& c : candidates) {
    reached += c.weight;
    if (reached > target) return c.id;
  }
  return candidates.back().id;
}

std::vector<TokenLogprob> most_likely(std::span<const float> logits, int64_t count, double total) {
  std::vector<int32_t> ids(logits.size());
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i);
  const auto last = ids.begin() + std::min(count, std::ssize(ids));
  std::partial_sort(ids.begin(), last, ids.end(), [&](int32_t a, int32_t b) {
    const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  });
  std::vector<TokenLogprob> likely;
  for (auto id = ids.begin(); id != last; ++id) {
    likely.push_back({*id, static_cast<float>(static_cast<double>(logits[static_cast<size_t>(*id)]) - total)});
  }
  return likely;
}

}  // namespace

void check(const SamplingParams& sampling) {
  const auto range = [](const char* name, double value, double low, double high) {
    if (!(value >= low && value <= high)) {
      throw_error(ErrorKind::usage, "{} is {}; it must be from {} to {}", name, value, low, high);
    }
  };
  range("temperature", sampling.temperature, 0, 100);
  range("top_p", sampling.top_p, 0, 1);
  range("min_p", sampling.min_p, 0, 1);
  range("repetition_penalty", sampling.repetition_penalty, 0.01, 100);
  range("top_k", static_cast<double>(sampling.top_k), 0, 1e9);
  range("presence_penalty", sampling.presence_penalty, -2, 2);
  range("frequency_penalty", sampling.frequency_penalty, -2, 2);
  range("top_logprobs", static_cast<double>(sampling.top_logprobs), 0, static_cast<double>(max_top_logprobs));
  for (const LogitBias& bias : sampling.logit_bias) range("logit_bias", static_cast<double>(bias.bias), -100, 100);
}

void check_number(double logit) {
  if (!std::isnan(logit) && !(logit > std::numeric_limits<double>::max())) return;
  throw_hint(ErrorKind::corrupt,
             "fp16 activations overflow from 65520 on: if this is fp16, use bf16 or fp32; otherwise the weights may be "
             "damaged, or an adapter's scale too large",
             "a logit is not finite");
}

bool has_penalties(const SamplingParams& sampling) {
  return sampling.repetition_penalty != 1 || sampling.presence_penalty != 0 || sampling.frequency_penalty != 0;
}

std::vector<LogitEdit> logit_edits(const SamplingParams& sampling, const TokenCounts& past) {
  const bool repeats = sampling.repetition_penalty != 1;
  const bool counts = sampling.presence_penalty != 0 || sampling.frequency_penalty != 0;
  std::map<int32_t, double> bias;
  for (const LogitBias& each : sampling.logit_bias) bias[each.id] += static_cast<double>(each.bias);
  std::vector<LogitEdit> edits;
  auto next = bias.begin();
  const auto biased_before = [&](auto end) {
    for (; next != end; ++next) edits.push_back({.id = next->first, .add = static_cast<float>(next->second)});
  };
  for (const auto& [id, count] : past.by_id()) {
    const bool counted = counts && count.output > 0;
    if (!repeats && !counted) continue;
    biased_before(bias.lower_bound(id));
    LogitEdit edit{.id = id};
    double add = 0;
    if (next != bias.end() && next->first == id) add = (next++)->second;
    if (counted) add -= sampling.presence_penalty + sampling.frequency_penalty * static_cast<double>(count.output);
    edit.add = static_cast<float>(add);
    if (repeats) {
      edit.positive = static_cast<float>(1 / sampling.repetition_penalty);
      edit.negative = static_cast<float>(sampling.repetition_penalty);
    }
    edits.push_back(edit);
  }
  biased_before(bias.end());
  return edits;
}

SampledToken sample_token(std::span<const float> logits, const SamplingParams& sampling, const SamplingContext& past,
                          int64_t position) {
  for (float logit : logits) check_number(static_cast<double>(logit));
  const double total = log_sum_exp(logits, *std::max_element(logits.begin(), logits.end()));
  const std::vector<float> changed = edited(logits, sampling, past);
  const auto highest = std::max_element(changed.begin(), changed.end());
  if (*highest == excluded) throw_error(ErrorKind::internal, "no token is allowed next");
  const int32_t id =
      sampling.temperature == 0 ? static_cast<int32_t>(highest - changed.begin()) : draw(changed, sampling, position);
  return {id, static_cast<float>(static_cast<double>(logits[static_cast<size_t>(id)]) - total),
          most_likely(logits, sampling.top_logprobs, total)};
}

}  // namespace ingot::infer
