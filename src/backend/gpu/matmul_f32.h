// Matrix products of f32.
#pragma once

#include "backend/gpu/matrix_product.h"

namespace ingot::ops {
struct Context;
}

namespace ingot::gpu {

void multiply_f32(ops::Context& context, const MatrixProduct& product);

}  // namespace ingot::gpu
