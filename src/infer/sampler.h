// Choosing the next token from logits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ingot::infer {

struct Sampling {
  double temperature = 0;         // 0: the most likely token (of equal ones the lowest id)
  int64_t top_k = 0;              // only the k most likely; 0: all
  double top_p = 1;               // only the fewest most likely whose probabilities reach p (Holtzman et al. 2020)
  double min_p = 0;               // only those of at least min_p times the highest probability
  double repetition_penalty = 1;  // logits of tokens seen are divided (positive) or multiplied (negative) by it
                                  // (Keskar et al. 2019, arXiv 1909.05858)
  uint64_t seed = 0;
};

// ErrorKind::usage, naming the setting, for one out of its range.
void check(const Sampling& sampling);

struct Choice {
  int32_t id = 0;
  float logprob = 0;  // natural log of its probability under the unchanged logits (temperature 1, nothing cut)
};

// ErrorKind::internal, with what may be the cause, when a logit, or what was computed of logits, is NaN.
void check_number(double logit);

// Chooses among logits [V]. `seen` are the ids of prompt and output so far, for the repetition penalty. The draw is a
// pure function of (logits, sampling, position): Philox keyed by (seed, position), so the same request gives the same
// text whatever else is in the batch. Order of filters: penalty, temperature, top_k, top_p, min_p (transformers'
// order). Errors: check_number's.
Choice choose(std::span<const float> logits, const Sampling& sampling, std::span<const int32_t> seen, int64_t position);

}  // namespace ingot::infer
