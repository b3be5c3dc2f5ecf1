// Samples the next token from logits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "infer/token_counts.h"

namespace ingot::infer {

struct LogitBias {
  int32_t id = 0;
  float bias = 0;  // added to the logit; several entries for one id add up
};

struct SamplingParams {
  double temperature = 0;         // 0: greedy, the most likely token (of equal ones the lowest id)
  int64_t top_k = 0;              // only the k most likely (of equal ones the lowest ids); 0: all
  double top_p = 1;               // nucleus: the fewest most likely whose probabilities reach p (Holtzman et al. 2020)
  double min_p = 0;               // only those with at least min_p times the highest probability
  double repetition_penalty = 1;  // logits of tokens in prompt or output are divided (positive) or multiplied
                                  // (negative) by it (Keskar et al. 2019, arXiv 1909.05858)
  // Only for tokens of the output, as OpenAI defines them: logit -= presence * (count > 0) + frequency * count.
  double presence_penalty = 0;   // -2 .. 2
  double frequency_penalty = 0;  // -2 .. 2
  std::vector<LogitBias> logit_bias;
  int64_t top_logprobs = 0;  // 0 .. 20: number of most likely tokens that are returned
  uint64_t seed = 0;
};

constexpr int64_t max_top_logprobs = 20;

// ErrorKind::usage, naming the setting, for one out of its range.
void check(const SamplingParams& sampling);

// A token and its natural log-probability under the raw logits (temperature 1, no penalties, nothing cut or masked).
struct TokenLogprob {
  int32_t id = 0;
  float logprob = 0;
};

struct SampledToken {
  int32_t id = 0;
  float logprob = 0;  // as in TokenLogprob
  std::vector<TokenLogprob>
      top;  // the SamplingParams::top_logprobs most likely, in order; of equal ones the lowest id first
};

// ErrorKind::corrupt, with possible causes, when a logit, or a value computed from logits, is NaN or +infinity.
void check_number(double logit);

// The tokens before the one that is sampled, and the allowed tokens.
struct SamplingContext {
  std::span<const int32_t> ids;       // prompt and output so far; the repetition penalty counts both
  int64_t prompt = 0;                 // length of the prompt; presence and frequency penalties do not count it
  std::span<const uint32_t> allowed;  // bits as of TokenMask::fill; empty: every token is allowed
};

// How one token's logit changes before sampling: logit * (logit > 0 ? positive : negative) + add.
struct LogitEdit {
  int32_t id = 0;
  float positive = 1;
  float negative = 1;
  float add = 0;
};

// Whether logit_edits depends on the earlier tokens.
bool has_penalties(const SamplingParams& sampling);

// Penalties and logit bias as edits, sorted by id, each id once.
std::vector<LogitEdit> logit_edits(const SamplingParams& sampling, const TokenCounts& past);

// Factor from logits to exponents of 2, log2(e) / temperature, for a temperature above 0; limited so that it is finite
// and 0 stays 0.
float power_scale(double temperature);

// Samples from logits [V], V at most 2^22. A pure function of (logits, sampling, past, position): the random number is
// Philox keyed by (seed, position), so that a request gives the same text whatever else is in the batch. Order:
// repetition penalty, presence and frequency penalties, bias, mask, temperature, top_k, top_p, min_p. Weights are
// integers (ops/sampling_weight.h), and the random number picks from the cumulative weights of the remaining tokens in
// the order of ids. This is the plain reference of ops/sampling.h, which samples the same tokens. Errors:
// check_number's, and internal when no token is allowed.
SampledToken sample_token(std::span<const float> logits, const SamplingParams& sampling, const SamplingContext& past,
                          int64_t position);

}  // namespace ingot::infer
