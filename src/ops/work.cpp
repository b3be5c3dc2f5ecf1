#include "ops/work.h"

namespace ingot::ops {

OpWork plain_work(std::span<const Tensor> tensors) {
  OpWork work{.wide = tensors[1].dtype == DType::f32};
  for (const Tensor& tensor : tensors) work.bytes += static_cast<double>(tensor.bytes());
  return work;
}

OpWork gemm_work(std::span<const Tensor> tensors, bool with_term) {
  OpWork work = plain_work(tensors);
  // Padding of logits (ops/matmul.h) is counted. A linear layer's operand has as many rows as the result; a plain
  // matmul's may be transposed.
  const int64_t m = tensors[0].shape[0];
  int64_t k = tensors[1].elements() / m;
  if (with_term) k += tensors[tensors.size() - 2].shape[1];
  work.gemm = {m, tensors[0].shape[1], k};
  return work;
}

OpWork recoding_work(const Tensor& plain, const Weight& encoded) {
  const double codes = static_cast<double>(row_bytes(encoded.storage, encoded.in)) * static_cast<double>(encoded.out);
  return {.bytes = static_cast<double>(plain.bytes()) + codes, .wide = plain.dtype == DType::f32};
}

OpWork attention_work(std::span<const Tensor> tensors, double passes) {
  OpWork work = plain_work(tensors);
  work.attention_tokens = passes * static_cast<double>(tensors[0].shape[0]);
  work.wide = tensors[0].dtype == DType::f32;
  return work;
}

}  // namespace ingot::ops
