// Choosing the next token from logits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "infer/token_counts.h"

namespace ingot::infer {

struct LogitBias {
  int32_t id = 0;
  float bias = 0;  // added to the logit; several of one id are added up
};

struct Sampling {
  double temperature = 0;         // 0: the most likely token (of equal ones the lowest id)
  int64_t top_k = 0;              // only the k most likely (of equal ones the lowest ids); 0: all
  double top_p = 1;               // only the fewest most likely whose probabilities reach p (Holtzman et al. 2020)
  double min_p = 0;               // only those of at least min_p times the highest probability
  double repetition_penalty = 1;  // logits of tokens seen are divided (positive) or multiplied (negative) by it
                                  // (Keskar et al. 2019, arXiv 1909.05858)
  // Of tokens of the output, as OpenAI defines them: logit -= presence (if there is any) + frequency * how many.
  double presence_penalty = 0;   // -2 .. 2
  double frequency_penalty = 0;  // -2 .. 2
  std::vector<LogitBias> logit_bias;
  int64_t top_logprobs = 0;  // 0 .. 20: so many of the most likely tokens are given
  uint64_t seed = 0;
};

constexpr int64_t most_top_logprobs = 20;

// ErrorKind::usage, naming the setting, for one out of its range.
void check(const Sampling& sampling);

// A token and the natural log of its probability under the unchanged logits (temperature 1, nothing cut or masked).
struct Likely {
  int32_t id = 0;
  float logprob = 0;
};

struct Choice {
  int32_t id = 0;
  float logprob = 0;        // as Likely's
  std::vector<Likely> top;  // Sampling::top_logprobs, most likely first; of equal ones the lowest id
};

// ErrorKind::corrupt, with what may be the cause, when a logit, or what was computed of logits, is NaN or +infinity.
void check_number(double logit);

// What came before the token, and what may come.
struct Past {
  std::span<const int32_t> ids;       // prompt and output so far: the repetition penalty's
  int64_t prompt = 0;                 // so many of them are the prompt: presence and frequency do not count these
  std::span<const uint32_t> allowed;  // as TokenMask::fill's bits; empty: every token may come
};

// What is done to the logit of one token before anything is chosen: logit * (logit > 0 ? positive : negative) + add.
struct LogitEdit {
  int32_t id = 0;
  float positive = 1;
  float negative = 1;
  float add = 0;
};

// Whether logit_edits looks at what came before.
bool has_penalties(const Sampling& sampling);

// Penalties for what came before and bias as edits, in the order of ids, each id once.
std::vector<LogitEdit> logit_edits(const Sampling& sampling, const TokenCounts& past);

// What logits are multiplied by before they are powers of two, for a temperature above 0: finite, so that 0 stays 0.
float power_scale(double temperature);

// Chooses among logits [V], V at most 2^22. The draw is a pure function of (logits, sampling, past, position): Philox
// keyed by (seed, position), so the same request gives the same text whatever else is in the batch. Order: repetition
// penalty, presence and frequency, bias, mask, temperature, top_k, top_p, min_p. Weights are integers
// (ops/sampling_weight.h), and of those left the draw goes through them in the order of ids. This is the plain
// reference of ops/sampling.h, which makes the same choices. Errors: check_number's, and internal when no token may
// come.
Choice choose(std::span<const float> logits, const Sampling& sampling, const Past& past, int64_t position);

}  // namespace ingot::infer
