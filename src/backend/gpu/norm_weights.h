// Gradients of the weights of both norms.
#pragma once

#include <cstdint>

#include "ops/context.h"

namespace ingot::gpu {

// dweight [n] (+)= sum of dy (x - mean) rstd and dbias [n] (+)= sum of dy over the rows of dy and x [rows, n]: first of
// `rows_a_block` rows each, then of the blocks, in their order. Without mean [rows] it is 0; dweight or dbias may be
// absent. `sums` is room for as many rows of n as there are blocks, and as many again for dbias.
void norm_weight_gradients(ops::Context& context, const Tensor& dweight, const Tensor& dbias, const Tensor& dy,
                           const Tensor& x, const Tensor& mean, const Tensor& rstd, float* sums, int64_t rows_a_block,
                           bool accumulate);

}  // namespace ingot::gpu
