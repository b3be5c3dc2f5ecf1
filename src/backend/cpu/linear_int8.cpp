#include "ops/linear_int8.h"

#include "backend/cpu/glue.h"
#include "backend/cpu/ops.h"
#include "backend/cpu/simd/int8_gemm.h"
#include "ops/linear_group.h"
#include "ops/linear_int8_bytes.h"
#include "ops/registry.h"

namespace ingot::cpu {
namespace {

static_assert(ops::linear_int8_bytes(1, 160) == int8_row_bytes(160));

bool declines_group(const ops::Context&, std::span<const Tensor>, const Tensor&, std::span<const Weight> weights,
                    ops::LinearGroupAttributes attributes, ops::Refusal refuse) {
  if (!attributes.int8_activations) return refuse("rounds activations to 8 bits");
  for (size_t i = 1; i < weights.size(); ++i) {
    if (weights[i].storage != weights[0].storage) return refuse("supports weights of one type only");
  }
  return false;
}

template <const Int8GemmKernels& K>
void run_group(ops::Context& context, std::span<const Tensor> y, const Tensor& x, std::span<const Weight> weights,
               ops::LinearGroupAttributes attributes) {
  const Weight& first = weights.front();
  const bool four_bits = first.storage == StorageType::q4_0;
  const int64_t tokens = x.shape[0];
  const Arena::Scope scope(context.scratch);
  const size_t rounded_row = ops::linear_int8_bytes(1, first.in);
  auto* rounded = static_cast<unsigned char*>(context.scratch.allocate_bytes(ops::linear_int8_bytes(tokens, first.in)));
  by_type(x.dtype, [&]<class T>() {
    context.threads->parallel_for(0, tokens, row_grain(first.in), [&](int64_t lo, int64_t hi) {
      for (int64_t t = lo; t < hi; ++t) {
        of_type<T>(K.quantize)(rounded + static_cast<size_t>(t) * rounded_row, elements<T>(x) + t * first.in, first.in,
                               four_bits);
      }
    });
    const auto gemm = of_type<T>(four_bits ? K.q4 : K.q8);
    const int64_t rows = num_rows(weights);
    const int64_t grain =
        weight_row_grain(rows, first.in, row_bytes(first.storage, first.in), tokens, context.threads->threads(), false);
    context.threads->parallel_for(0, rows, grain, [&](int64_t begin, int64_t end) {
      for_each_weight(weights, begin, end, [&](size_t i, int64_t lo, int64_t hi) {
        const Weight& weight = weights[i];
        float* y_float = y[i].dtype == DType::f32 ? y[i].as<float>() + lo : nullptr;
        T* y_typed = y[i].dtype == DType::f32 ? nullptr : elements<T>(y[i]) + lo;
        gemm(y_float, y_typed, weight.out, rounded, weight.slice(lo, hi).data, tokens, hi - lo, weight.in,
             attributes.linear.accumulate);
      });
    });
  });
}

template <const Int8GemmKernels& K>
void run(ops::Context& context, const Tensor& y, const Tensor& x, const Weight& weight,
         ops::LinearAttributes attributes) {
  run_group<K>(context, std::span(&y, 1), x, std::span(&weight, 1), {.linear = attributes, .int8_activations = true});
}

}  // namespace

void register_linear_int8(ops::Registry& registry, Levels levels) {
  INGOT_ADD_LEVELS(registry, levels.best, ops::LinearInt8, run, int8_gemm_kernels);
}

void register_int8_group(ops::Registry& registry, Levels levels) {
  INGOT_ADD_LEVELS(registry, levels.best, ops::LinearGroup, run_group, int8_gemm_kernels, declines_group);
}

}  // namespace ingot::cpu
