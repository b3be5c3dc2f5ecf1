// Cross-entropy of next-token logits. Letters: T tokens (of a chunk), V vocabulary.
#pragma once

#include "ops/context.h"
#include "tensor/tensor.h"

namespace ingot::ops {

// losses [T] f32 = log(sum exp(logits[t])) - logits[t][targets[t]], or 0 where targets[t] is -1 (not in the loss).
// Another target outside [0, V) is ErrorKind::internal; on devices whose memory the host cannot see, its loss and
// dlogits are NaN, also where it is a column of padding (ops/matmul.h).
// dlogits [T, V], f32 or bf16, not computed when absent: softmax - one-hot, and rows of zeros where the target is -1.
// It is the gradient of the plain sum of losses: the step divides by the number of loss tokens once, at its end. logits
// [T, V] f32; sums in fp32. dlogits may share memory with logits when it is f32.
void cross_entropy(Context& context, const Tensor& losses, const Tensor& dlogits, const Tensor& logits,
                   const Tensor& targets);

struct CrossEntropy {
  static constexpr const char* name = "cross_entropy";
  using Signature = void(Context&, const Tensor&, const Tensor&, const Tensor&, const Tensor&);
};

// The same where logits [T, V] are columns [first, first + V) of the vocabulary, and other ranks have the others, in
// two ops: from the sums of all parts follow the losses, lse of all - at_target of all. lse [T] f32 = log(sum
// exp(logits[t])); at_target [T] f32 = the logit of targets[t], 0 where it is in another part or -1.
void log_sum_exp(Context& context, const Tensor& lse, const Tensor& at_target, const Tensor& logits,
                 const Tensor& targets, int64_t first);

struct LogSumExp {
  static constexpr const char* name = "log_sum_exp";
  using Signature = void(Context&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, int64_t);
};

// dlogits [T, V], f32 or bf16, = exp(logits[t] - lse[t]) - one-hot, with lse [T] f32 of all parts; rows of zeros where
// the target is -1. dlogits may share memory with logits when it is f32.
void softmax_gradient(Context& context, const Tensor& dlogits, const Tensor& logits, const Tensor& lse,
                      const Tensor& targets, int64_t first);

struct SoftmaxGradient {
  static constexpr const char* name = "softmax_gradient";
  using Signature = void(Context&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, int64_t);
};

}  // namespace ingot::ops
