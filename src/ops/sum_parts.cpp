#include "ops/sum_parts.h"

#include "ops/check.h"
#include "ops/registry.h"

namespace ingot::ops {

void sum_parts(Context& context, const Tensor& y, const Tensor& parts, bool accumulate) {
  check_rank("sum_parts", "parts", parts, 2);
  check_dtype("sum_parts", "parts", parts, {DType::f32, DType::bf16, DType::f16, DType::i64});
  check_device("sum_parts", "parts", context, parts);
  check("sum_parts", "y", context, y, Shape{parts.shape[1]}, {parts.dtype});
  if (parts.shape[0] == 0) throw_error(ErrorKind::internal, "sum_parts: there are no parts");
  if (y.elements() != 0) dispatch<SumParts>(context, y, parts, accumulate);
}

}  // namespace ingot::ops
