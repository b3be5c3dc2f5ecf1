#include "ops/blockwise.h"

#include "ops/check.h"
#include "ops/registry.h"

namespace ingot::ops {

namespace {

void check_blocks(const char* op, const Context& context, const Tensor& codes, const Tensor& scales, const Tensor& x) {
  check(op, "x", context, x, Shape{x.elements()}, {DType::f32});
  check(op, "codes", context, codes, x.shape, {DType::u8});
  check(op, "scales", context, scales, Shape{blockwise_blocks(x.elements())}, {DType::f32});
}

}  // namespace

void check_state(const char* op, const char* what, const Context& context, const Tensor& state, const Tensor& scales,
                 const Shape& shape) {
  check(op, what, context, state, shape, {DType::f32, DType::bf16, DType::u8});
  if (state.elements() == 0) return;  // its scales are absent
  if ((state.dtype == DType::u8) != static_cast<bool>(scales)) {
    throw_error(ErrorKind::internal, "{}: {} of {} {} scales", op, what, name(state.dtype),
                scales ? "with" : "without");
  }
  if (scales) check(op, what, context, scales, Shape{blockwise_blocks(state.elements())}, {DType::f32});
}

void quantize_blockwise(Context& context, const Tensor& codes, const Tensor& scales, const Tensor& x,
                        BlockwiseAttributes attributes) {
  check_blocks("quantize_blockwise", context, codes, scales, x);
  if (attributes.decision) {
    check("quantize_blockwise", "decision", context, attributes.decision, Shape{3}, {DType::f64});
  }
  if (x.elements() == 0) return;
  dispatch<QuantizeBlockwise>(context, codes, scales, x, attributes);
}

void dequantize_blockwise(Context& context, const Tensor& x, const Tensor& codes, const Tensor& scales,
                          bool is_signed) {
  check_blocks("dequantize_blockwise", context, codes, scales, x);
  if (x.elements() == 0) return;
  dispatch<DequantizeBlockwise>(context, x, codes, scales, is_signed);
}

}  // namespace ingot::ops
