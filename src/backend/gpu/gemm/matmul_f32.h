// Gemms of f32 operands.
#pragma once

#include "backend/gpu/gemm/gemm.h"

namespace ingot::ops {
struct Context;
}

namespace ingot::gpu {

void multiply_f32(ops::Context& context, const Gemm& product);

}  // namespace ingot::gpu
