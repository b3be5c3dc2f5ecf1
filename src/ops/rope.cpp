#include "ops/rope.h"

#include "base/error.h"
#include "ops/check.h"
#include "ops/registry.h"

namespace ingot::ops {

void rope(Context& context, const Tensor& y, const Tensor& x, const Tensor& positions, const Tensor& frequencies,
          RopeAttributes attributes) {
  const char* op = Rope::name;
  check_rank(op, "x", x, 2);
  check_dtype(op, "x", x, forward_types);
  check_device(op, "x", context, x);
  check(op, "y", context, y, x.shape, {x.dtype});
  check(op, "positions", context, positions, {x.shape[0]}, {DType::i32});
  check_rank(op, "frequencies", frequencies, 1);
  check_dtype(op, "frequencies", frequencies, {DType::f32});
  check_device(op, "frequencies", context, frequencies);
  if (attributes.heads < 1 || x.shape[1] % attributes.heads != 0 ||
      2 * frequencies.shape[0] > x.shape[1] / attributes.heads) {
    throw_error(ErrorKind::internal, "{}: x is {}, which does not fit {} heads and frequencies {}", op, x.text(),
                attributes.heads, frequencies.text());
  }
  if (x.elements() == 0) return;
  dispatch<Rope>(context, y, x, positions, frequencies, attributes);
}

}  // namespace ingot::ops
