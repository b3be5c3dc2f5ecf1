// Weight and bias gradients of RMSNorm and LayerNorm.
#pragma once

#include <cstdint>

#include "ops/context.h"

namespace ingot::gpu {

// dweight [n] (+)= sum of dy (x - mean) rstd, and dbias [n] (+)= sum of dy, over the rows of dy and x [rows, n].
// Partial sums of `rows_per_block` rows each are added in block order. An absent mean [rows] counts as 0; dweight or
// dbias may be absent. `sums` has room for [blocks, n] partial sums of dweight, then as many for dbias.
void norm_weight_gradients(ops::Context& context, const Tensor& dweight, const Tensor& dbias, const Tensor& dy,
                           const Tensor& x, const Tensor& mean, const Tensor& rstd, float* sums, int64_t rows_per_block,
                           bool accumulate);

}  // namespace ingot::gpu
