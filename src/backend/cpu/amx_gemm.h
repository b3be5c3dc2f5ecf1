// The gemm engine `amx`: bf16 matrix multiplication with AMX tiles.
#pragma once

#include "backend/cpu/gemm.h"
#include "ops/refusal.h"

namespace ingot::cpu {

// Whether AMX does not support this gemm.
bool amx_declines(DType in, DType out, int64_t k, ops::Refusal refuse);

// Gemm of bf16 operands into f32 or bf16, over the pool's threads. Every sum is one chain over k; at its end it is
// rounded to c's dtype, or with `accumulate` first added to c. Only on machines with Isa::amx.
void amx_gemm(ops::Context& context, const Gemm& gemm, void* c, const void* a, const void* b);

}  // namespace ingot::cpu
