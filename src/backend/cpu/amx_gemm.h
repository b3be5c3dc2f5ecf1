// The engine `amx`: bf16 matrix products on AMX's tiles.
#pragma once

#include <string>

#include "backend/cpu/gemm.h"

namespace ingot::cpu {

// Why AMX does not serve this product; empty when it does.
std::string amx_declines(DType in, DType out, int64_t k);

// Products of bf16 into f32 or bf16 over the pool's threads. Every sum is one chain over k, rounded to c's type at its
// end, or, accumulating, added to c first. On machines with Isa::amx only.
void amx_gemm(ops::Context& context, const Gemm& gemm, void* c, const void* a, const void* b);

}  // namespace ingot::cpu
