// Column sums of partial sums over blocks of rows: the second stage of every bias and norm weight gradient.
#pragma once

#include <cstdint>

#include "ops/context.h"

namespace ingot::gpu {

// out [n] (+)= sum of sums [rows, n] over the rows, in row order.
void sum_rows(ops::Context& context, float* out, const float* sums, int64_t rows, int64_t n, bool accumulate);

}  // namespace ingot::gpu
