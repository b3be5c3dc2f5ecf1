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

namespace {

// Arguments of both ops on a part of the vocabulary. False when there is nothing to do.
bool check_part(const char* op, Context& context, const Tensor& logits, const Tensor& targets, const Tensor& lse,
                int64_t first) {
  check_rank(op, "logits", logits, 2);
  check(op, "logits", context, logits, logits.shape, {DType::f32});
  const Shape tokens{logits.shape[0]};
  check(op, "targets", context, targets, tokens, {DType::i32});
  check(op, "lse", context, lse, tokens, {DType::f32});
  if (logits.shape[1] == 0 || first < 0) {
    throw_error(ErrorKind::internal, "{}: logits is {}, from token {} of the vocabulary on", op, logits.text(), first);
  }
  return logits.shape[0] > 0;
}

}  // namespace

void log_sum_exp(Context& context, const Tensor& lse, const Tensor& at_target, const Tensor& logits,
                 const Tensor& targets, int64_t first) {
  constexpr const char* op = LogSumExp::name;
  const bool some = check_part(op, context, logits, targets, lse, first);
  check(op, "at_target", context, at_target, lse.shape, {DType::f32});
  if (some) dispatch<LogSumExp>(context, lse, at_target, logits, targets, first);
}

void softmax_gradient(Context& context, const Tensor& dlogits, const Tensor& logits, const Tensor& lse,
                      const Tensor& targets, int64_t first) {
  constexpr const char* op = SoftmaxGradient::name;
  const bool some = check_part(op, context, logits, targets, lse, first);
  check(op, "dlogits", context, dlogits, logits.shape, {DType::f32, DType::bf16});
  if (some) dispatch<SoftmaxGradient>(context, dlogits, logits, lse, targets, first);
}

}  // namespace ingot::ops
