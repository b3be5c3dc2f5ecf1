// How much the outputs of one grammar may make together, and one of them.
#pragma once

#include <cstdint>

namespace ingot::grammar {

struct StateLimits {
  int64_t terms = 400'000;  // of a TermPool
  int64_t rows = 100'000;   // of an Automaton
  // Of one mask: steps of its walk over the vocabulary, and new rows.
  int64_t mask_visits = 4'000'000;
  int64_t mask_rows = 100'000;
  // Steps of all masks that one output was the first to need: `output_visits`, and so many for each of its tokens.
  int64_t output_visits = INT64_MAX / 2;
  int64_t token_visits = 0;
};

}  // namespace ingot::grammar
