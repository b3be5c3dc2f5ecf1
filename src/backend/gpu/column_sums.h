// Sums of columns, from partial sums of blocks of rows: the second half of every gradient of a bias or norm weight.
#pragma once

#include <cstdint>

#include "ops/context.h"

namespace ingot::gpu {

// out [n] (+)= sum over the rows, in their order, of sums [rows, n].
void sum_rows(ops::Context& context, float* out, const float* sums, int64_t rows, int64_t n, bool accumulate);

}  // namespace ingot::gpu
