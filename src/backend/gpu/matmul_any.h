// Products that the tiles of matmul.gpu.cpp do not take: f32, and operands that cannot be moved 16 bytes at a time.
#pragma once

#include "backend/gpu/matrix_product.h"

namespace ingot::ops {
struct Context;
}

namespace ingot::gpu {

void multiply_any(ops::Context& context, const MatrixProduct& product);

}  // namespace ingot::gpu
