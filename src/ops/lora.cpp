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

void grouped_lora(Context& context, const Tensor& y, const Tensor& x, const Tensor& entries, const Tensor& slots,
                  const Tensor& token_of_row, const Tensor& offsets, GroupedLoraAttributes attributes) {
  constexpr const char* op = GroupedLora::name;
  check_rank(op, "y", y, 2);
  check_rank(op, "x", x, 2);
  check_rank(op, "entries", entries, 3);
  check_rank(op, "slots", slots, 1);
  check_rank(op, "offsets", offsets, 1);
  const int64_t rows = x.shape[0];
  check(op, "x", context, x, x.shape, forward_types);
  check(op, "y", context, y, Shape{rows, y.shape[1]}, {x.dtype, DType::f32});
  check(op, "entries", context, entries, Shape{entries.shape[0], entries.shape[1], 3}, {DType::i64});
  check(op, "slots", context, slots, slots.shape, {DType::i32});
  check(op, "token_of_row", context, token_of_row, Shape{rows}, {DType::i32});
  check(op, "offsets", context, offsets, offsets.shape, {DType::i32});
  const int64_t last = attributes.layer + (offsets.shape[0] - 2) * attributes.layer_step;
  if (attributes.layer < 0 || attributes.layer_step < 0 || last < 0 || last >= entries.shape[1] ||
      attributes.rank < 0) {
    throw_error(ErrorKind::internal, "{}: layers {} to {} of entries {}, or rank {}", op, attributes.layer, last,
                entries.text(), attributes.rank);
  }
  if (y.elements() == 0 || attributes.rank == 0) return;
  dispatch<GroupedLora>(context, y, x, entries, slots, token_of_row, offsets, attributes);
}

}  // namespace ingot::ops
