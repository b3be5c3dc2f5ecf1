#include "ops/rope.h"

#include "ops/checks.h"
#include "ops/registry.h"

namespace ingot::ops {

void rope(Context& context, const Tensor& y, const Tensor& x, const Tensor& positions, const Tensor& frequencies,
          RopeAttributes attributes) {
  const NamedTensors tensors = {{"y", y}, {"x", x}, {"positions", positions}, {"frequencies", frequencies}};
  const char* op = Rope::name;
  require(x.shape.rank() == 2 && is_activation(x.dtype), op, "x [T, heads D] of f32 or bf16", tensors);
  require(is(y, x.dtype, x.shape), op, "y like x", tensors);
  require(is(positions, DType::i32, Shape{x.shape[0]}), op, "positions [T] i32", tensors);
  require(frequencies.dtype == DType::f32 && frequencies.shape.rank() == 1 && attributes.heads > 0 &&
              attributes.heads * 2 * frequencies.shape[0] == x.shape[1],
          op, "frequencies [D/2] f32 with heads D columns of x", tensors);
  dispatch<Rope>(context, y, x, positions, frequencies, attributes);
}

}  // namespace ingot::ops
