#include "ops/linear_int8.h"

#include "backend/cpu/glue.h"
#include "backend/cpu/ops.h"
#include "backend/cpu/simd/int8_gemm.h"
#include "ops/linear_int8_bytes.h"
#include "ops/registry.h"

namespace ingot::cpu {
namespace {

static_assert(ops::linear_int8_bytes(1, 160) == int8_row_bytes(160));

template <const Int8GemmKernels& K>
void run(ops::Context& context, const Tensor& y, const Tensor& x, const Weight& weight,
         ops::LinearAttributes attributes) {
  const bool four_bits = weight.storage == StorageType::q4_0;
  const int64_t tokens = x.shape[0];
  const Arena::Scope scope(context.scratch);
  const size_t rounded_row = ops::linear_int8_bytes(1, weight.in);
  auto* rounded =
      static_cast<unsigned char*>(context.scratch.allocate_bytes(ops::linear_int8_bytes(tokens, weight.in)));
  by_type(x.dtype, [&]<class T>() {
    context.threads->parallel_for(0, tokens, row_grain(weight.in), [&](int64_t lo, int64_t hi) {
      for (int64_t t = lo; t < hi; ++t) {
        of_type<T>(K.quantize)(rounded + static_cast<size_t>(t) * rounded_row, elements<T>(x) + t * weight.in,
                               weight.in, four_bits);
      }
    });
    const auto gemm = of_type<T>(four_bits ? K.q4 : K.q8);
    const int64_t grain = weight_row_grain(weight.out, weight.in, row_bytes(weight.storage, weight.in), tokens,
                                           context.threads->threads());
    context.threads->parallel_for(0, weight.out, grain, [&](int64_t lo, int64_t hi) {
      float* y_float = y.dtype == DType::f32 ? y.as<float>() + lo : nullptr;
      T* y_typed = y.dtype == DType::f32 ? nullptr : elements<T>(y) + lo;
      gemm(y_float, y_typed, weight.out, rounded, weight.slice(lo, hi).data, tokens, hi - lo, weight.in,
           attributes.accumulate);
    });
  });
}

}  // namespace

void register_linear_int8(ops::Registry& registry, Levels levels) {
  INGOT_ADD_LEVELS(registry, levels.best, ops::LinearInt8, run, int8_gemm_kernels);
}

}  // namespace ingot::cpu
