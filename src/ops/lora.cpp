#include "ops/lora.h"

#include "ops/check.h"
#include "ops/registry.h"

namespace ingot::ops {

void lora(Context& context, const Tensor& y, const Tensor& x, const Tensor& entries, const Tensor& slots,
          LoraAttributes attributes) {
  constexpr const char* op = "lora";
  check_rank(op, "y", y, 2);
  check_rank(op, "x", x, 2);
  check_rank(op, "entries", entries, 3);
  const int64_t tokens = x.shape[0];
  check(op, "x", context, x, x.shape, forward_types);
  check(op, "y", context, y, Shape{tokens, y.shape[1]}, {x.dtype, DType::f32});
  check(op, "entries", context, entries, Shape{entries.shape[0], entries.shape[1], 3}, {DType::i64});
  check(op, "slots", context, slots, Shape{tokens}, {DType::i32});
  if (attributes.layer < 0 || attributes.layer >= entries.shape[1] || attributes.rank < 0) {
    throw_error(ErrorKind::internal, "{}: invalid layer {} of entries {}, or rank {}", op, attributes.layer,
                entries.text(), attributes.rank);
  }
  if (y.elements() == 0 || attributes.rank == 0) return;
  dispatch<Lora>(context, y, x, entries, slots, attributes);
}

}  // namespace ingot::ops
