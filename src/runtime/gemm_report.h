// How a GPU runs the gemms of training and serving: by which algorithm of its vendor's library, and how fast.
#pragma once

#include <span>
#include <string>

#include "backend/gpu/gpu_device.h"
#include "backend/gpu/runtime/matmul_library.h"
#include "ops/matmul.h"
#include "ops/registry.h"

namespace ingot::runtime {

// c [m, n] = a [m, k] b [k, n] with a and b in bf16.
struct GemmJob {
  const char* name;
  int64_t m, n, k;
  ops::MatmulAttributes attributes;
  DType out = DType::bf16;

  double flops() const { return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k); }
};

// Of Llama-3.1-8B with micro-batches of 4096 tokens, of GPT-2 1558M with 16,384, and of the former as a server.
std::span<const GemmJob> gemm_jobs();

struct GemmReport {
  gpu::MatmulPlan plan;      // its `reason` says why our own kernels run the gemm
  double flops_per_s = 0;    // of the best of five measurements, by whatever runs it; 0: not measured
  std::string not_measured;  // why
};
// `expected`: FLOP/s by which to judge whether the measurement would take too long. Allocates the matrices during the
// call.
GemmReport report_gemm(gpu::GpuDevice& device, const ops::Registry& registry, const GemmJob& job, double expected);

}  // namespace ingot::runtime
