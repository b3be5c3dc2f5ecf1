// oneDNN's gemm, one thread per slice. onednn.cpp is the only file that includes oneDNN's header.
#pragma once

#include "backend/cpu/gemm.h"
#include "ops/refusal.h"

namespace ingot::cpu {

// Whether oneDNN does not support this gemm.
bool onednn_declines(DType in, DType out, int64_t k, ops::Refusal refuse);

// Computes a slice on the calling thread, with primitives cached by shape. Copies of operands with gaps between their
// rows, and oneDNN's own scratch memory, are in the workspace; where they do not fit, c is computed in blocks.
// ErrorKind::internal when oneDNN fails.
void onednn_gemm(const Gemm& gemm, void* c, const void* a, const void* b, std::span<std::byte> workspace);

}  // namespace ingot::cpu
