#include "infer/sampler.h"

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "base/error.h"
#include "base/philox.h"

namespace ingot::infer {

namespace {

double log_sum_exp(std::span<const float> logits, float highest) {
  double sum = 0;
  for (float logit : logits) sum += std::exp(static_cast<double>(logit) - static_cast<double>(highest));
  return static_cast<double>(highest) + std::log(sum);
}

struct Candidate {
  int32_t id;
  double weight;  // exp(logit / temperature - highest), un-normalised
};

void penalise(std::vector<float>& logits, std::span<const int32_t> seen, double penalty) {
  const std::unordered_set<int32_t> ids(seen.begin(), seen.end());
  for (int32_t id : ids) {
    if (id < 0 || static_cast<size_t>(id) >= logits.size()) continue;
    float& logit = logits[static_cast<size_t>(id)];
    logit = static_cast<float>(logit > 0 ? logit / penalty : logit * penalty);
  }
}

// Most likely first; of equal ones the lower id.
bool likelier(const Candidate& a, const Candidate& b) {
  return a.weight != b.weight ? a.weight > b.weight : a.id < b.id;
}

// Cuts the candidates down to those that top_k, top_p and min_p leave.
void filter(std::vector<Candidate>& candidates, const Sampling& sampling) {
  const size_t k =
      sampling.top_k > 0 ? std::min(candidates.size(), static_cast<size_t>(sampling.top_k)) : candidates.size();
  if (k == candidates.size() && sampling.top_p >= 1 && sampling.min_p <= 0) return;
  std::partial_sort(candidates.begin(), candidates.begin() + static_cast<int64_t>(k), candidates.end(), likelier);
  candidates.resize(k);
  if (sampling.top_p < 1) {
    double total = 0;
    for (const Candidate& c : candidates) total += c.weight;
    double reached = 0;
    size_t kept = 0;
    while (kept < candidates.size() && reached < sampling.top_p * total) reached += candidates[kept++].weight;
    candidates.resize(std::max<size_t>(kept, 1));
  }
  const double least = sampling.min_p * candidates.front().weight;
  while (candidates.back().weight < least) candidates.pop_back();
}

}  // namespace

void check(const Sampling& sampling) {
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
}

void check_number(double logit) {
  if (!std::isnan(logit)) return;
  throw_hint(
      ErrorKind::internal,
      "in fp16 activations from 65520 on become infinite: if this is fp16, use bf16 or fp32; else the weights may "
      "be damaged",
      "a logit is not a number");
}

Choice choose(std::span<const float> logits, const Sampling& sampling, std::span<const int32_t> seen,
              int64_t position) {
  for (float logit : logits) check_number(static_cast<double>(logit));
  const double total = log_sum_exp(logits, *std::max_element(logits.begin(), logits.end()));
  const auto choice = [&](int32_t id) {
    return Choice{id, static_cast<float>(static_cast<double>(logits[static_cast<size_t>(id)]) - total)};
  };

  std::vector<float> penalised;
  std::span<const float> used = logits;
  if (sampling.repetition_penalty != 1) {
    penalised.assign(logits.begin(), logits.end());
    penalise(penalised, seen, sampling.repetition_penalty);
    used = penalised;
  }
  const auto highest = std::max_element(used.begin(), used.end());
  if (sampling.temperature == 0) return choice(static_cast<int32_t>(highest - used.begin()));

  std::vector<Candidate> candidates(used.size());
  for (size_t i = 0; i < used.size(); ++i) {
    const double logit = (static_cast<double>(used[i]) - static_cast<double>(*highest)) / sampling.temperature;
    candidates[i] = {static_cast<int32_t>(i), std::exp(logit)};
  }
  filter(candidates, sampling);
  double sum = 0;
  for (const Candidate& c : candidates) sum += c.weight;
  RandomStream random(sampling.seed, position);
  double left = random.uniform_double() * sum;
  for (const Candidate& c : candidates) {
    left -= c.weight;
    if (left < 0) return choice(c.id);
  }
  return choice(candidates.back().id);
}

}  // namespace ingot::infer
