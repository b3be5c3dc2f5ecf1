#include "ops/fixed_sum.h"

#include "ops/check.h"
#include "ops/registry.h"

namespace ingot::ops {

namespace {

void check_sum(const char* op, Context& context, const Tensor& sum, const Tensor& floats, const Tensor& largest,
               const Tensor& range, int bits) {
  check(op, "sum", context, sum, sum.shape, {DType::i64});
  check(op, "the fp32 operand", context, floats, sum.shape, {DType::f32});
  check(op, "largest", context, largest, Shape{1}, {DType::f32});
  check(op, "range", context, range, Shape{1}, {DType::i32});
  if (bits < 1 || bits > 62) throw_error(ErrorKind::internal, "{}: {} bits, must be from 1 to 62", op, bits);
}

}  // namespace

void add_fixed(Context& context, const Tensor& sum, const Tensor& largest, const Tensor& x, const Tensor& range,
               int bits, bool accumulate) {
  check_sum("add_fixed", context, sum, x, largest, range, bits);
  dispatch<AddFixed>(context, sum, largest, x, range, bits, accumulate);
}

void fixed_to_float(Context& context, const Tensor& y, const Tensor& sum, const Tensor& largest, const Tensor& range,
                    int bits) {
  check_sum("fixed_to_float", context, sum, y, largest, range, bits);
  if (sum.elements() != 0) dispatch<FixedToFloat>(context, y, sum, largest, range, bits);
}

void next_ranges(Context& context, const Tensor& range, const Tensor& largest) {
  check("next_ranges", "range", context, range, Shape{range.elements()}, {DType::i32});
  check("next_ranges", "largest", context, largest, range.shape, {DType::f32});
  if (range.elements() != 0) dispatch<NextRanges>(context, range, largest);
}

}  // namespace ingot::ops
