// Quantisation and dequantisation of fp8 rows. The gemms run in bf16, which represents fp8 values exactly.
#include "ops/linear_fp8.h"

#include <algorithm>
#include <vector>

#include "backend/cpu/glue.h"
#include "backend/cpu/ops.h"
#include "ops/registry.h"
#include "tensor/fp8.h"

namespace ingot::cpu {
namespace {

using ops::Context;

// The scales of the rows of `by`, or their inverses; empty without `by`.
std::vector<float> scales_of(const Weight& by, bool inverse) {
  std::vector<float> scales;
  for (int64_t row = 0; by && row < by.out; ++row) {
    const float scale = fp8_row_scale(static_cast<const std::byte*>(by.slice(row, row + 1).data), by.in);
    scales.push_back(inverse ? 1.0F / scale : scale);
  }
  return scales;
}

void multiply(std::vector<float>& row, const std::vector<float>& by) {
  for (size_t i = 0; i < by.size(); ++i) row[i] *= by[i];
}

// Calls body(row number, fp8 row, buffer for its values) for every row.
template <class Body>
void for_rows(Context& context, const Weight& q, Body body) {
  context.threads->parallel_for(0, q.out, row_grain(q.in), [&](int64_t lo, int64_t hi) {
    std::vector<float> values(static_cast<size_t>(q.in));
    for (int64_t row = lo; row < hi; ++row) {
      body(row, static_cast<std::byte*>(const_cast<void*>(q.slice(row, row + 1).data)), values);
    }
  });
}

void quantize(Context& context, const Weight& q, const Tensor& x, const Weight& by) {
  const std::vector<float> scales = scales_of(by, false);
  for_rows(context, q, [&](int64_t row, std::byte* codes, std::vector<float>& values) {
    const int64_t begin = row * q.in;
    if (x.dtype == DType::f32) {
      std::copy_n(x.as<float>() + begin, q.in, values.begin());
    } else {
      std::transform(x.as<uint16_t>() + begin, x.as<uint16_t>() + begin + q.in, values.begin(), bf16_to_float);
    }
    multiply(values, scales);
    encode_fp8(q.storage, values.data(), q.in, codes);
  });
}

void dequantize(Context& context, const Tensor& x, const Weight& q, const Weight& by) {
  const std::vector<float> inverses = scales_of(by, true);
  for_rows(context, q, [&](int64_t row, const std::byte* codes, std::vector<float>& values) {
    decode_fp8(q.storage, codes, q.in, 0, q.in, values.data());
    multiply(values, inverses);
    const int64_t begin = row * q.in;
    if (x.dtype == DType::f32) {
      std::copy(values.begin(), values.end(), x.as<float>() + begin);
    } else {
      std::transform(values.begin(), values.end(), x.as<uint16_t>() + begin, float_to_bf16);
    }
  });
}

void copy_scales(Context&, const Tensor& scales, const Weight& q) {
  const std::vector<float> of_rows = scales_of(q, false);
  std::copy(of_rows.begin(), of_rows.end(), scales.as<float>());
}

}  // namespace

void register_linear_fp8(ops::Registry& registry, Levels) {
  registry.add<ops::QuantizeFp8>(DeviceKind::cpu, "plain", quantize);
  registry.add<ops::DequantizeFp8>(DeviceKind::cpu, "plain", dequantize);
  registry.add<ops::Fp8Scales>(DeviceKind::cpu, "plain", copy_scales);
  registry.add<ops::GemmFp8>(DeviceKind::cpu, "decoded", ops::linear_fp8_decoded);
  registry.add<ops::GemmFp8BackwardInput>(DeviceKind::cpu, "decoded", ops::linear_fp8_backward_input_decoded);
}

}  // namespace ingot::cpu
