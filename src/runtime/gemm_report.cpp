#include "runtime/gemm_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "backend/gpu/gemm/gemm_ops.h"
#include "base/clock.h"
#include "base/error.h"
#include "runtime/random_pool.h"

namespace ingot::runtime {

namespace {

using ops::Invariance;

constexpr ops::MatmulAttributes forward{.transpose_b = true, .invariance = Invariance::rows};
constexpr ops::MatmulAttributes input_gradient{.invariance = Invariance::rows};
constexpr ops::MatmulAttributes weight_gradient{.transpose_a = true, .invariance = Invariance::none};
constexpr ops::MatmulAttributes served{.transpose_b = true, .invariance = Invariance::none};

// The rows of the head are those of a chunk of the loss on GPUs (spec::loss_chunk); weight gradients are sums over a
// micro-batch.
constexpr GemmJob jobs[] = {
    {"8B q, forward", 4096, 4096, 4096, forward},
    {"8B k, forward", 4096, 1024, 4096, forward},
    {"8B gate, forward", 4096, 14336, 4096, forward},
    {"8B down, forward", 4096, 4096, 14336, forward},
    {"8B gate, input gradient", 4096, 4096, 14336, input_gradient},
    {"8B down, input gradient", 4096, 14336, 4096, input_gradient},
    {"8B gate, weight gradient", 14336, 4096, 4096, weight_gradient, DType::f32},
    {"8B down, weight gradient", 4096, 14336, 4096, weight_gradient, DType::f32},
    {"8B adapter A of rank 16, forward", 4096, 16, 4096, forward},
    {"8B head, forward", 2048, 128256, 4096, served, DType::f32},
    {"8B head, input gradient", 2048, 4096, 128256, {.invariance = Invariance::none}},
    {"8B head, weight gradient", 128256, 4096, 2048, weight_gradient, DType::f32},
    {"1558M fc, forward", 16384, 6400, 1600, forward},
    {"1558M fc, weight gradient", 6400, 1600, 16384, weight_gradient, DType::f32},
    {"1558M head, forward", 5312, 50257, 1600, served, DType::f32},
    {"8B gate, 32 streams", 32, 14336, 4096, served},
    {"8B gate, 256 streams", 256, 14336, 4096, served},
    {"8B down, 32 streams", 32, 4096, 14336, served},
    {"8B down, 256 streams", 256, 4096, 14336, served},
};

constexpr double longest_call = 0.1;  // seconds
constexpr int measurements = 5;
constexpr int calls = 10;  // in each

}  // namespace

std::span<const GemmJob> gemm_jobs() { return jobs; }

GemmReport report_gemm(gpu::GpuDevice& device, const ops::Registry& registry, const GemmJob& job, double expected) {
  const ops::MatmulAttributes& with = job.attributes;
  const Shape a_shape = with.transpose_a ? Shape{job.k, job.m} : Shape{job.m, job.k};
  const Shape b_shape = with.transpose_b ? Shape{job.n, job.k} : Shape{job.k, job.n};
  const Shape c_shape{job.m, job.n};
  GemmReport report;
  // The library is asked without memory, as if all of it was aligned.
  report.plan = device.matmul_library().describe(gpu::gemm_of({nullptr, job.out, c_shape, &device},
                                                              {nullptr, DType::bf16, a_shape, &device},
                                                              {nullptr, DType::bf16, b_shape, &device}, with));
  const double seconds = job.flops() / expected;
  if (!(seconds <= longest_call)) {
    report.not_measured = fmt::format("a call would take about {:.1f} s", seconds);
    return report;
  }
  const size_t bytes = Arena::footprint(job.out, c_shape) + Arena::footprint(DType::bf16, a_shape) +
                       Arena::footprint(DType::bf16, b_shape);
  try {
    Arena scratch;
    Arena memory(device, bytes, "measuring");
    RandomPool random(1, std::max(a_shape.elements(), b_shape.elements()));
    const Tensor c = memory.allocate(job.out, c_shape);
    const Tensor a = memory.allocate(DType::bf16, a_shape);
    const Tensor b = memory.allocate(DType::bf16, b_shape);
    for (const Tensor& given : {a, b}) random.fill(device, given, 1);
    ops::Context context{device, registry, scratch, nullptr};
    ops::matmul(context, c, a, b, with);  // selects and loads kernels
    double best = std::numeric_limits<double>::infinity();
    for (int measurement = 0; measurement < measurements; ++measurement) {
      uint16_t one = 0;
      device.copy_to_host(&one, c.data, sizeof one);  // waits for the kernels
      const double begin = steady_seconds();
      for (int call = 0; call < calls; ++call) ops::matmul(context, c, a, b, with);
      device.copy_to_host(&one, c.data, sizeof one);
      best = std::min(best, (steady_seconds() - begin) / calls);
    }
    report.flops_per_s = job.flops() / best;
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::internal) throw;
    report.not_measured = error.message();
  }
  return report;
}

}  // namespace ingot::runtime
