// How much the outputs of one grammar may make together.
#pragma once

#include <cstdint>

namespace ingot::grammar {

struct StateLimits {
  int64_t terms = 400'000;  // of a TermPool
  int64_t rows = 100'000;   // of an Automaton
};

}  // namespace ingot::grammar
