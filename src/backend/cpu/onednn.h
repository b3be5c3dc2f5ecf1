// oneDNN's matrix product, one thread a slice. onednn.cpp is the only file that includes its header.
#pragma once

#include <string>

#include "backend/cpu/gemm.h"

namespace ingot::cpu {

// Why oneDNN does not serve this product; empty when it does.
std::string onednn_declines(DType in, DType out, int64_t k);

// A slice on the calling thread, with primitives cached by shape. ErrorKind::internal when oneDNN fails.
void onednn_gemm(const Gemm& gemm, void* c, const void* a, const void* b);

}  // namespace ingot::cpu
