// Gemms of tensors and of weights. A weight that is stored in x's dtype is used in place; any other is decoded, a slice
// of rows at a time.
#include "ops/matmul.h"

#include "backend/cpu/amx_gemm.h"
#include "backend/cpu/decode.h"
#include "backend/cpu/gemm.h"
#include "backend/cpu/glue.h"
#include "backend/cpu/onednn.h"
#include "backend/cpu/ops.h"
#include "backend/cpu/simd/fma_gemm.h"
#include "backend/cpu/simd/gemm.h"
#include "backend/cpu/simd/pair_gemm.h"
#include "backend/cpu/workspace.h"
#include "ops/linear_bias.h"
#include "ops/linear_low_rank.h"
#include "ops/matmul_bytes.h"

namespace ingot::cpu {
namespace {

using ops::Context;

GemmShape shape_of(const Gemm& gemm) {
  return {.m = gemm.m,
          .n = gemm.n,
          .k = gemm.k,
          .a_row = gemm.transpose_a ? 1 : gemm.lda,
          .a_column = gemm.transpose_a ? gemm.lda : 1,
          .b_row = gemm.transpose_b ? 1 : gemm.ldb,
          .b_column = gemm.transpose_b ? gemm.ldb : 1,
          .c_row = gemm.ldc,
          .accumulate = gemm.accumulate};
}

template <const GemmKernels& K>
void simd_gemm(const Gemm& gemm, void* c, const void* a, const void* b, std::span<std::byte> workspace) {
  static_assert(gemm_pack_floats * sizeof(float) <= thread_workspace);
  const GemmShape shape = shape_of(gemm);
  auto* pack = WorkspaceArrays(workspace).take<float>(gemm_pack_floats);
  const auto run = [&]<class T, class Y>(void (*kernel)(const GemmShape&, Y*, const T*, const T*, float*)) {
    kernel(shape, static_cast<Y*>(c), static_cast<const T*>(a), static_cast<const T*>(b), pack);
  };
  const bool wide = gemm.out == DType::f32;
  switch (gemm.in) {
    case DType::f32: return wide ? run(K.f32_f32) : run(K.f32_bf16);
    case DType::bf16: return wide ? run(K.bf16_f32) : run(K.bf16_bf16);
    default: return wide ? run(K.f16_f32) : run(K.f16_f16);
  }
}

#if defined(INGOT_SIMD_X86)
// bf16 gemms with a sum longer than this are left to oneDNN, which splits long sums and is faster. The limit does not
// depend on m and n, so the summation order depends on k alone.
constexpr int64_t longest_pair_sum = 6144;
constexpr size_t dot_gemm_bytes(int64_t k, int64_t term_k) {
  return static_cast<size_t>(pair_gemm_pack(std::min(k, longest_pair_sum), term_k)) * sizeof(uint32_t);
}
constexpr size_t fma_gemm_bytes(int64_t, int64_t) { return fma_gemm_pack * sizeof(float); }
static_assert(std::max(dot_gemm_bytes(longest_pair_sum, 0), fma_gemm_bytes(0, 0)) <= thread_workspace);

template <class Run, class Packed>
void run_bf16_gemm(Run run, const Gemm& gemm, void* c, const void* a, const void* b, Packed* pack) {
  const bool wide = gemm.out == DType::f32;
  const LowRankTerm term{.low = static_cast<const Bf16*>(gemm.term.low),
                         .b = static_cast<const Bf16*>(gemm.term.b),
                         .k = gemm.term.k,
                         .b_row = gemm.transpose_b ? 1 : gemm.term.ldb,
                         .b_column = gemm.transpose_b ? gemm.term.ldb : 1};
  run(shape_of(gemm), wide ? static_cast<float*>(c) : nullptr, wide ? nullptr : static_cast<Bf16*>(c),
      static_cast<const Bf16*>(a), static_cast<const Bf16*>(b), term, pack);
}

void dot_gemm(const Gemm& gemm, void* c, const void* a, const void* b, std::span<std::byte> workspace) {
  run_bf16_gemm(avx512::pair_gemm_kernels.run, gemm, c, a, b,
                WorkspaceArrays(workspace).take<uint32_t>(pair_gemm_pack(gemm.k, gemm.term.k)));
}

void fma_gemm(const Gemm& gemm, void* c, const void* a, const void* b, std::span<std::byte> workspace) {
  run_bf16_gemm(avx512::fma_gemm_kernels.run, gemm, c, a, b, WorkspaceArrays(workspace).take<float>(fma_gemm_pack));
}

bool dot_gemm_declines(DType in, DType, int64_t k, ops::Refusal refuse) {
  if (in != DType::bf16) return refuse("supports bf16 only");
  return k > longest_pair_sum && refuse("supports k up to 6144");
}

bool fma_gemm_declines(DType in, DType, int64_t, ops::Refusal refuse) {
  return in != DType::bf16 && refuse("supports bf16 only");
}
#endif

// A gemm over the pool's threads: an engine that uses the pool itself, or slices of one thread each.
using Product = void (*)(Context& context, const Gemm& gemm, void* c, const void* a, const void* b);

template <GemmSlice S, Cut C = Cut::rows>
void sliced(Context& context, const Gemm& gemm, void* c, const void* a, const void* b) {
  parallel_gemm(context, gemm, c, a, b, S, C);
}

template <Product P>
void run_matmul(Context& context, const Tensor& c, const Tensor& a, const Tensor& b, ops::MatmulAttributes attributes) {
  const Gemm gemm{.m = c.shape[0],
                  .n = c.shape[1],
                  .k = a.shape[attributes.transpose_a ? 0 : 1],
                  .in = a.dtype,
                  .out = c.dtype,
                  .transpose_a = attributes.transpose_a,
                  .transpose_b = attributes.transpose_b,
                  .accumulate = attributes.accumulate,
                  .lda = a.shape[1],
                  .ldb = b.shape[1],
                  .ldc = c.shape[1]};
  P(context, gemm, c.data, a.data, b.data);
}

// Decodes the rows of `weight` to `dtype` at `out`.
void decode_rows(Context& context, const ElementwiseKernels& kernels, const Weight& weight, void* out, DType dtype) {
  const size_t row_size = static_cast<size_t>(weight.in) * size_of(dtype);
  context.threads->parallel_for(0, weight.out, row_grain(weight.in), [&](int64_t lo, int64_t hi) {
    for (int64_t row = lo; row < hi; ++row) {
      decode_row(kernels, weight, row, static_cast<std::byte*>(out) + static_cast<size_t>(row) * row_size, dtype);
    }
  });
}

// Calls body(first row, slice, data of the slice in `dtype`) for slices of rows.
template <class Body>
void for_slices(Context& context, const ElementwiseKernels& kernels, const Weight& weight, DType dtype, Body body) {
  if (in_place(weight, dtype)) return body(int64_t{0}, weight, weight.data);
  const Arena::Scope scope(context.scratch);
  const int64_t most = ops::decoded_rows(weight.out, weight.in, true);
  void* rows = context.scratch.allocate_bytes(static_cast<size_t>(most * weight.in) * size_of(dtype));
  for (int64_t begin = 0; begin < weight.out; begin += most) {
    const Weight slice = weight.slice(begin, std::min(begin + most, weight.out));
    decode_rows(context, kernels, slice, rows, dtype);
    body(begin, slice, static_cast<const void*>(rows));
  }
}

// `term` covers all columns of y.
template <Product P, const ElementwiseKernels& E>
void multiply_forward(Context& context, const Tensor& y, const Tensor& x, const Weight& weight, const GemmTerm& term,
                      bool accumulate) {
  for_slices(context, E, weight, x.dtype, [&](int64_t begin, const Weight& slice, const void* rows) {
    Gemm gemm{.m = x.shape[0],
              .n = slice.out,
              .k = weight.in,
              .in = x.dtype,
              .out = y.dtype,
              .transpose_b = true,
              .accumulate = accumulate,
              .lda = weight.in,
              .ldb = weight.in,
              .ldc = weight.out,
              .term = term};
    const size_t term_rows = static_cast<size_t>(begin * term.ldb) * size_of(x.dtype);
    gemm.term.b = static_cast<const std::byte*>(term.b) + term_rows;
    std::byte* columns = static_cast<std::byte*>(y.data) + static_cast<size_t>(begin) * size_of(y.dtype);
    P(context, gemm, columns, x.data, rows);
  });
}

template <Product P, const ElementwiseKernels& E>
void multiply_backward(Context& context, const Tensor& dx, const Tensor& dy, const Weight& weight, const GemmTerm& term,
                       bool accumulate) {
  const Arena::Scope scope(context.scratch);
  // A bf16 result that is summed over several slices is accumulated in fp32 until the last one.
  const bool several = !in_place(weight, dy.dtype) && ops::decoded_rows(weight.out, weight.in, true) < weight.out;
  const bool staged = several && dx.dtype != DType::f32;
  const Tensor sums = staged ? context.scratch.allocate(DType::f32, dx.shape) : dx;
  for_slices(context, E, weight, dy.dtype, [&](int64_t begin, const Weight& slice, const void* rows) {
    const Gemm gemm{.m = dy.shape[0],
                    .n = weight.in,
                    .k = slice.out,
                    .in = dy.dtype,
                    .out = sums.dtype,
                    .accumulate = begin > 0 || (accumulate && !staged),
                    .lda = weight.out,
                    .ldb = weight.in,
                    .ldc = weight.in,
                    .term = begin + slice.out == weight.out ? term : GemmTerm{}};
    const std::byte* columns = static_cast<const std::byte*>(dy.data) + static_cast<size_t>(begin) * size_of(dy.dtype);
    P(context, gemm, sums.data, columns, rows);
  });
  if (!staged) return;
  context.threads->parallel_for(0, dx.elements(), element_grain, [&](int64_t lo, int64_t hi) {
    float* totals = sums.as<float>() + lo;
    if (accumulate) E.add_from_bf16(totals, bf16(dx) + lo, hi - lo);
    E.scale_to_bf16.f32(bf16(dx) + lo, totals, 1.0F, hi - lo);
  });
}

template <Product P, const ElementwiseKernels& E>
void run_linear(Context& context, const Tensor& y, const Tensor& x, const Weight& weight,
                ops::LinearAttributes attributes) {
  multiply_forward<P, E>(context, y, x, weight, {}, attributes.accumulate);
}

template <Product P, const ElementwiseKernels& E>
void run_linear_backward_input(Context& context, const Tensor& dx, const Tensor& dy, const Weight& weight,
                               ops::LinearAttributes attributes) {
  multiply_backward<P, E>(context, dx, dy, weight, {}, attributes.accumulate);
}

template <Product P, const ElementwiseKernels& E>
void run_linear_low_rank(Context& context, const Tensor& y, const Tensor& x, const Weight& weight, const Tensor& low,
                         const Tensor& b, ops::LinearAttributes attributes) {
  const GemmTerm term{.low = low.data, .b = b.data, .k = low.shape[1], .ldb = b.shape[1]};
  multiply_forward<P, E>(context, y, x, weight, term, attributes.accumulate);
}

template <Product P, const ElementwiseKernels& E>
void run_linear_low_rank_backward_input(Context& context, const Tensor& dx, const Tensor& dy, const Weight& weight,
                                        const Tensor& low, const Tensor& a, ops::LinearAttributes attributes) {
  const GemmTerm term{.low = low.data, .b = a.data, .k = low.shape[1], .ldb = a.shape[1]};
  multiply_backward<P, E>(context, dx, dy, weight, term, attributes.accumulate);
}

template <const ElementwiseKernels& E>
void run_dequantize(Context& context, const Tensor& out, const Weight& weight) {
  decode_rows(context, E, weight, out.data, out.dtype);
}

void reference_dequantize(Context&, const Tensor& out, const Weight& weight) {
  std::vector<float> row(static_cast<size_t>(weight.in));
  for (int64_t r = 0; r < weight.out; ++r) {
    if (!is_plain(weight.storage)) decode_row(plain::elementwise_kernels, weight, r, row.data(), DType::f32);
    for (int64_t i = 0; i < weight.in; ++i) {
      const int64_t place = r * weight.in + i;
      set_element(out, place,
                  is_plain(weight.storage) ? element(weight.tensor(), place)
                                           : static_cast<double>(row[static_cast<size_t>(i)]));
    }
  }
}

// Whether an engine does not support a gemm.
using Declines = bool (*)(DType in, DType out, int64_t k, ops::Refusal refuse);

template <Declines D>
bool declines_matmul(const Context&, const Tensor& c, const Tensor& a, const Tensor&, ops::MatmulAttributes attributes,
                     ops::Refusal refuse) {
  return D(a.dtype, c.dtype, a.shape[attributes.transpose_a ? 0 : 1], refuse);
}
template <Declines D>
bool declines_linear(const Context&, const Tensor& result, const Tensor& given, const Weight&, ops::LinearAttributes,
                     ops::Refusal refuse) {
  return D(given.dtype, result.dtype, given.shape[1], refuse);
}

#if defined(INGOT_SIMD_X86)
// Bytes of workspace of a gemm with a sum of k, and a term's sum.
using GemmBytes = size_t (*)(int64_t k, int64_t term_k);

template <Declines D, GemmBytes B>
bool term_declines(const Context&, const Tensor& result, const Tensor& given, const Weight&, const Tensor& low,
                   const Tensor&, ops::LinearAttributes, ops::Refusal refuse) {
  const int64_t rank = low.shape[1];
  if (rank == 0 || rank % 2 != 0) return refuse("supports even ranks from 2 on only");
  if (B(given.shape[1], rank) > thread_workspace) {
    return refuse("the rank's panels do not fit into the workspace");  // ranks over 15,000
  }
  return D(given.dtype, result.dtype, given.shape[1], refuse);
}
#endif

bool takes_all(DType, DType, int64_t, ops::Refusal) { return false; }

template <Product P, const ElementwiseKernels& E, Declines D = takes_all>
void add_gemm(ops::Registry& registry, const char* name) {
  registry.add<ops::Matmul>(DeviceKind::cpu, name, run_matmul<P>, declines_matmul<D>);
  registry.add<ops::Linear>(DeviceKind::cpu, name, run_linear<P, E>, declines_linear<D>);
  registry.add<ops::LinearBackwardInput>(DeviceKind::cpu, name, run_linear_backward_input<P, E>, declines_linear<D>);
}

#if defined(INGOT_SIMD_X86)
// A gemm of bf16 that may have a low-rank term.
template <GemmSlice S, Declines D, GemmBytes B>
void add_bf16_gemm(ops::Registry& registry, const char* name) {
  using avx512::elementwise_kernels;
  constexpr Product product = sliced<S, Cut::longer>;
  add_gemm<product, elementwise_kernels, D>(registry, name);
  registry.add<ops::LinearLowRank>(DeviceKind::cpu, name, run_linear_low_rank<product, elementwise_kernels>,
                                   term_declines<D, B>);
  registry.add<ops::LinearLowRankBackwardInput>(
      DeviceKind::cpu, name, run_linear_low_rank_backward_input<product, elementwise_kernels>, term_declines<D, B>);
}
void add_fma(ops::Registry& registry) {
  add_bf16_gemm<fma_gemm, fma_gemm_declines, fma_gemm_bytes>(registry, "avx512_fma");
}
#endif

}  // namespace

void register_matmul(ops::Registry& registry, Levels levels) {
  register_skinny_gemm(registry, levels);
#if defined(INGOT_SIMD_X86)
  if (levels.best >= Isa::amx) add_gemm<amx_gemm, avx512::elementwise_kernels, amx_declines>(registry, "amx");
  if (levels.best >= Isa::avx512) {
    // With AMX tiles, two separate gemms are faster.
    if (levels.best >= Isa::amx) ops::add_low_rank_apart(registry, DeviceKind::cpu);
    if (levels.best >= Isa::avx512_fma) add_fma(registry);
    add_bf16_gemm<dot_gemm, dot_gemm_declines, dot_gemm_bytes>(registry, "avx512_bf16");
  }
  // With AVX2, oneDNN's summation order depends on the number of rows.
  if (levels.onednn && levels.best >= Isa::avx512) {
    add_gemm<sliced<onednn_gemm>, avx512::elementwise_kernels, onednn_declines>(registry, "onednn");
  }
  if (levels.best >= Isa::avx512) {
    add_gemm<sliced<simd_gemm<avx512::gemm_kernels>>, avx512::elementwise_kernels>(registry, "avx512");
  }
  if (levels.best >= Isa::avx2) {
    add_gemm<sliced<simd_gemm<avx2::gemm_kernels>>, avx2::elementwise_kernels>(registry, "avx2");
  }
#endif
  if (levels.best < Isa::amx) ops::add_low_rank_apart(registry, DeviceKind::cpu);
  ops::add_linear_bias_apart(registry, DeviceKind::cpu);
#if defined(INGOT_SIMD_X86)
  if (levels.best == Isa::avx512) add_fma(registry);  // only where it is asked for
#endif
  add_gemm<sliced<simd_gemm<plain::gemm_kernels>>, plain::elementwise_kernels>(registry, "plain");
  add_gemm<sliced<reference_gemm>, plain::elementwise_kernels>(registry, "reference");
  INGOT_ADD_LEVELS(registry, levels.best, ops::Dequantize, run_dequantize, elementwise_kernels);
  registry.add<ops::Dequantize>(DeviceKind::cpu, "reference", reference_dequantize);
}

}  // namespace ingot::cpu
