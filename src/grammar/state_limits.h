// Limits on the states that the outputs of one grammar create together, and on the work of one output.
#pragma once

#include <cstdint>

namespace ingot::grammar {

struct StateLimits {
  int64_t terms = 400'000;  // max terms of a TermPool
  int64_t rows = 100'000;   // max rows of an Automaton
  // Limits of one mask: steps of its walk over the vocabulary, and new rows.
  int64_t mask_visits = 4'000'000;
  int64_t mask_rows = 100'000;
  // Limit on the steps of all masks that one output was the first to request: `output_visits` plus `token_visits` for
  // each of its tokens.
  int64_t output_visits = INT64_MAX / 2;
  int64_t token_visits = 0;
};

}  // namespace ingot::grammar
