// The sum of what several ranks or micro-batches have computed.
#pragma once

#include "ops/context.h"
#include "tensor/tensor.h"

namespace ingot::ops {

// y [N] = parts[0] + parts[1] + ... + parts[P - 1] of parts [P, N] or, with `accumulate`, y + parts[0] + ...: f32, bf16
// and f16, added in fp32 in this order and rounded once, or i64. y shares no memory with parts. An i64 sum that
// overflows is ErrorKind::internal on a CPU, and is taken modulo 2^64 on a GPU.
void sum_parts(Context& context, const Tensor& y, const Tensor& parts, bool accumulate);

struct SumParts {
  static constexpr const char* name = "sum_parts";
  using Signature = void(Context&, const Tensor&, const Tensor&, bool);
};

}  // namespace ingot::ops
