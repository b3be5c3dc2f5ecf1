#include "backend/cpu/gemm.h"

#include "backend/cpu/glue.h"

namespace ingot::cpu {
namespace {

// Columns or rows per part: about as many parts as threads, whole panels of the engines' kernels, and small enough that
// the parts of c and b stay in the caches. No part is a single column or row, for which oneDNN may use another
// summation order.
int64_t piece_of(int64_t size, int64_t threads) {
  constexpr int64_t most = 4096;
  const int64_t rounds = (size + threads * most - 1) / (threads * most);
  const int64_t pieces = rounds * threads;
  const int64_t piece = (size + pieces - 1) / pieces;
  const int64_t panel = piece >= 256 ? 64 : 16;
  int64_t whole = (piece + panel - 1) / panel * panel;
  while (size > 1 && size % whole == 1) whole += panel;
  return whole;
}

}  // namespace

void parallel_gemm(ops::Context& context, const Gemm& gemm, void* c, const void* a, const void* b, GemmSlice slice,
                   Cut cut) {
  const int64_t in = static_cast<int64_t>(size_of(gemm.in));
  const int64_t out = static_cast<int64_t>(size_of(gemm.out));
  const auto at = [](const void* data, int64_t bytes) { return static_cast<const std::byte*>(data) + bytes; };
  const auto at_c = [&](int64_t elements) { return static_cast<std::byte*>(c) + elements * out; };
  // Below this size, waking up the pool costs more than it saves.
  const int64_t threads = gemm.m * gemm.n * gemm.k < 64 * 1024 ? 1 : context.threads->threads();
  const ThreadPool::Workspace workspace(*context.threads);
  // Parts of rows keep c dense and, unless a is transposed, a too, so oneDNN copies nothing. A c with few rows is not
  // split by rows, because every part would read all of b.
  if (gemm.n > gemm.m && (cut == Cut::longer || gemm.m < 48)) {
    const int64_t step = gemm.transpose_b ? gemm.ldb : 1;
    context.threads->parallel_for(0, gemm.n, piece_of(gemm.n, threads), [&](int64_t lo, int64_t hi, int thread) {
      Gemm part = gemm;
      part.n = hi - lo;
      if (gemm.term.k > 0) part.term.b = at(gemm.term.b, lo * (gemm.transpose_b ? gemm.term.ldb : 1) * in);
      slice(part, at_c(lo), a, at(b, lo * step * in), workspace.of(thread));
    });
  } else {
    const int64_t step = gemm.transpose_a ? 1 : gemm.lda;
    context.threads->parallel_for(0, gemm.m, piece_of(gemm.m, threads), [&](int64_t lo, int64_t hi, int thread) {
      Gemm part = gemm;
      part.m = hi - lo;
      part.term.low = at(gemm.term.low, lo * gemm.term.k * in);
      slice(part, at_c(lo * gemm.ldc), at(a, lo * step * in), b, workspace.of(thread));
    });
  }
}

namespace {

double read(const void* data, DType dtype, int64_t i) {
  if (dtype == DType::f32) return static_cast<double>(static_cast<const float*>(data)[i]);
  const uint16_t bits = static_cast<const uint16_t*>(data)[i];
  return static_cast<double>(dtype == DType::bf16 ? bf16_to_float(bits) : f16_to_float(bits));
}

}  // namespace

void reference_gemm(const Gemm& gemm, void* c, const void* a, const void* b, std::span<std::byte>) {
  for (int64_t i = 0; i < gemm.m; ++i) {
    for (int64_t j = 0; j < gemm.n; ++j) {
      const int64_t place = i * gemm.ldc + j;
      double total = gemm.accumulate ? read(c, gemm.out, place) : 0.0;
      for (int64_t k = 0; k < gemm.k; ++k) {
        const double left = read(a, gemm.in, gemm.transpose_a ? k * gemm.lda + i : i * gemm.lda + k);
        const double right = read(b, gemm.in, gemm.transpose_b ? j * gemm.ldb + k : k * gemm.ldb + j);
        total += left * right;
      }
      const float rounded = static_cast<float>(total);
      if (gemm.out == DType::f32) {
        static_cast<float*>(c)[place] = rounded;
      } else {
        static_cast<uint16_t*>(c)[place] = gemm.out == DType::bf16 ? float_to_bf16(rounded) : float_to_f16(rounded);
      }
    }
  }
}

}  // namespace ingot::cpu
