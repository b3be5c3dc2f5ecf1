// oneDNN's gemm, one thread per slice. onednn.cpp is the only file that includes oneDNN's header.
#pragma once

#include <string>

#include "backend/cpu/gemm.h"

namespace ingot::cpu {

// Why oneDNN does not support this gemm; empty if it does.
std::string onednn_declines(DType in, DType out, int64_t k);

// Computes a slice on the calling thread, with primitives cached by shape. ErrorKind::internal when oneDNN fails.
void onednn_gemm(const Gemm& gemm, void* c, const void* a, const void* b);

}  // namespace ingot::cpu
