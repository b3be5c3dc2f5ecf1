#include "ops/sampling.h"

#include "ops/check.h"
#include "ops/registry.h"

namespace ingot::ops {

void sample(Context& context, const Tensor& chosen, const Tensor& logprobs, const Tensor& logits,
            const SamplingRows& rows) {
  constexpr const char* op = "sample";
  check_rank(op, "logits", logits, 2);
  check_rank(op, "chosen", chosen, 2);
  const int64_t count = logits.shape[0], vocabulary = rows.vocabulary_of(logits);
  check(op, "logits", context, logits, logits.shape, {DType::f32});
  if (vocabulary < 1 || vocabulary > logits.shape[1] || vocabulary > 1 << 22 || chosen.shape[1] < 1 ||
      chosen.shape[1] > vocabulary) {
    throw_error(ErrorKind::internal, "{}: chosen is {}, which does not fit {} tokens of logits {}", op, chosen.text(),
                vocabulary, logits.text());
  }
  check(op, "chosen", context, chosen, Shape{count, chosen.shape[1]}, {DType::i32});
  check(op, "logprobs", context, logprobs, chosen.shape, {DType::f32});
  check(op, "scales", context, rows.scales, Shape{count, 2}, {DType::f32});
  check(op, "cuts", context, rows.cuts, Shape{count, 5}, {DType::i32});
  check(op, "edit_offsets", context, rows.edit_offsets, Shape{count + 1}, {DType::i32});
  if (rows.masks) {
    check(op, "masks", context, rows.masks, Shape{rows.masks.shape[0], (vocabulary + 31) / 32}, {DType::i32});
  }
  if (rows.edit_ids) {
    check(op, "edit_ids", context, rows.edit_ids, Shape{rows.edit_ids.shape[0]}, {DType::i32});
    check(op, "edit_values", context, rows.edit_values, Shape{rows.edit_ids.shape[0], 3}, {DType::f32});
  }
  if (count == 0) return;
  dispatch<Sample>(context, chosen, logprobs, logits, rows);
}

void insert_sampled(Context& context, const Tensor& ids, const Tensor& known, const Tensor& chosen) {
  constexpr const char* op = "insert_sampled";
  check_rank(op, "ids", ids, 1);
  check_rank(op, "chosen", chosen, 2);
  check(op, "ids", context, ids, ids.shape, {DType::i32});
  check(op, "known", context, known, ids.shape, {DType::i32});
  check(op, "chosen", context, chosen, chosen.shape, {DType::i32});
  if (ids.shape[0] == 0) return;
  dispatch<InsertSampled>(context, ids, known, chosen);
}

}  // namespace ingot::ops
