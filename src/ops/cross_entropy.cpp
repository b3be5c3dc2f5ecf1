#include "ops/cross_entropy.h"

#include "ops/check.h"
#include "ops/registry.h"

namespace ingot::ops {

void cross_entropy(Context& context, const Tensor& losses, const Tensor& dlogits, const Tensor& logits,
                   const Tensor& targets) {
  constexpr const char* op = "cross_entropy";
  check_rank(op, "logits", logits, 2);
  check(op, "logits", context, logits, logits.shape, {DType::f32});
  const Shape tokens{logits.shape[0]};
  check(op, "losses", context, losses, tokens, {DType::f32});
  check(op, "targets", context, targets, tokens, {DType::i32});
  if (dlogits) check(op, "dlogits", context, dlogits, logits.shape, {DType::f32, DType::bf16});
  if (logits.shape[0] == 0) return;
  if (logits.shape[1] == 0)
    throw_error(ErrorKind::internal, "{}: logits is {}, the vocabulary must not be empty", op, logits.text());
  dispatch<CrossEntropy>(context, losses, dlogits, logits, targets);
}

}  // namespace ingot::ops
