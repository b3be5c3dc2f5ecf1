// Rows of a weight of any storage as f32 or bf16.
#pragma once

#include "backend/cpu/simd/elementwise.h"
#include "tensor/weight.h"

namespace ingot::cpu {

// Row `row` of `weight` (in elements) to `out`, of type f32 or bf16, rounded once.
void decode_row(const ElementwiseKernels& kernels, const Weight& weight, int64_t row, void* out, DType dtype);

}  // namespace ingot::cpu
