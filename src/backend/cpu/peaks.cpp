// Measured peak rates of this machine, for `ingot devices`, the planner, and utilisation.
#include "backend/cpu/simd/peaks.h"

#include <atomic>
#include <chrono>

#include "backend/cpu/amx/tiles.h"
#include "backend/cpu/best_of.h"
#include "backend/cpu/glue.h"
#include "backend/cpu/isa.h"
#include "ops/matmul.h"

namespace ingot::cpu {
namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

const PeakKernels& kernels() {
#if defined(INGOT_SIMD_X86)
  switch (best_isa()) {
    case Isa::amx:
    case Isa::avx512_fma:
    case Isa::avx512: return avx512::peak_kernels;
    case Isa::avx2: return avx2::peak_kernels;
    case Isa::plain: break;
  }
#endif
  return plain::peak_kernels;
}

// The kernel of bf16 dot products; null if the machine has no instruction for them.
double (*bf16_dot_products())(int64_t, float*) {
#if defined(INGOT_SIMD_X86)
  if (best_isa() >= Isa::amx) return amx::tile_dot_products;
#endif
  return kernels().bf16_dot_products;
}

// The best rate of repeated calls of `work`, which returns the amount of work done, over `seconds`.
template <class Work>
double best_rate(double seconds, Work work) {
  double best = 0;
  const auto start = Clock::now();
  do {
    const auto before = Clock::now();
    const double amount = work();
    best = std::max(best, amount / since(before));
  } while (since(start) < seconds);
  return best;
}

double arithmetic_rate(ThreadPool& pool, double seconds, double (*kernel)(int64_t, float*)) {
  std::vector<float> results(static_cast<size_t>(pool.threads()) * peak_result_stride);
  return best_rate(seconds, [&] {
    std::vector<double> done(static_cast<size_t>(pool.threads()));
    pool.run(pool.threads(), [&](int slot) {
      done[static_cast<size_t>(slot)] = kernel(200000, results.data() + slot * peak_result_stride);
    });
    double total = 0;
    for (const double one : done) total += one;
    return total;
  });
}

}  // namespace

bool has_bf16_dot_products() { return bf16_dot_products() != nullptr; }

double measure_read(ops::Context& context, double seconds) {
  constexpr int64_t count = int64_t{64} << 20;  // floats: larger than the caches
  const Buffer memory(context.device, static_cast<size_t>(count) * sizeof(float));
  float* data = static_cast<float*>(memory.data());
  const int64_t grain = count / context.threads->threads() / 64 * 64 + 64;
  const auto over_all = [&](auto body) { context.threads->parallel_for(0, count, grain, body); };
  // Pages that were never written would all map to one page of zeros.
  over_all([&](int64_t lo, int64_t hi) { std::fill(data + lo, data + hi, 1.0F); });
  std::atomic<float> result{0};
  return best_rate(seconds, [&] {
    over_all([&](int64_t lo, int64_t hi) { result.store(kernels().read(data + lo, hi - lo)); });
    return static_cast<double>(count) * sizeof(float);
  });
}

GemmRates measure_gemm(ops::Context& context, DType dtype, double seconds) {
  const bool own = dtype == DType::bf16 && has_bf16_dot_products();
  constexpr int64_t size = 2048;
  const size_t bytes = static_cast<size_t>(size * size) * size_of(dtype);
  const Buffer a(context.device, bytes);
  const Buffer b(context.device, bytes);
  const Buffer c(context.device, static_cast<size_t>(size * size) * sizeof(float));
  const Shape square{size, size};
  const auto multiply = [&] {
    ops::matmul(context, c.view(DType::f32, square), a.view(dtype, square), b.view(dtype, square),
                {.transpose_b = true});
    return 2.0 * size * size * size;
  };
  multiply();  // warm-up: creates the primitives
  constexpr int rounds = 4;
  const double each = seconds / (2 * rounds);
  // bf16 can be multiplied as fp32 too.
  const auto [matmul, arithmetic] = best_of(
      rounds, [&] { return best_rate(each, multiply); },
      [&] {
        const double fma = arithmetic_rate(*context.threads, each / (own ? 2 : 1), kernels().fused_multiply_adds);
        return own ? std::max(fma, arithmetic_rate(*context.threads, each / 2, bf16_dot_products())) : fma;
      });
  return {std::max(arithmetic, matmul), matmul};  // the peak is at least what matmul reaches
}

}  // namespace ingot::cpu
