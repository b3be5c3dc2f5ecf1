#include "nn/head.h"

#include "nn/transfer.h"
#include "ops/elementwise.h"
#include "ops/matmul_bytes.h"
#include "ops/registry.h"

namespace ingot::nn {

bool Head::takes_padding(const Pass& pass) const {
  return !is_part() && !pass.tp.sliced() && scale == 1 && softcap == 0 && linear.is_gemm(pass) &&
         pass.ops.registry.supports(ops::op_id<ops::Linear>, pass.ops.device.kind(),
                                    ops::Registry::Feature::padded_columns);
}

int64_t Head::logit_columns(const Pass& pass, int64_t rows) const {
  return rows > ops::max_skinny_rows && takes_padding(pass) ? ops::padded_columns(vocabulary) : vocabulary;
}

void Head::forward(Pass& pass, const Tensor& logits, const Tensor& normed) const {
  linear.forward(pass, logits, normed);
  if (scale != 1) ops::scale(pass.ops, logits, logits, scale);
  if (softcap > 0) ops::softcap(pass.ops, logits, logits, softcap);
}

void Head::backward(Pass& pass, const Tensor& dnormed, const Tensor& dlogits, const Tensor& logits,
                    const Tensor& normed) const {
  const Arena::Scope scope(pass.ops.scratch);
  Tensor dlinear = dlogits;
  if (softcap > 0) {
    ops::softcap_backward(pass.ops, dlogits, dlogits, logits, softcap);
    if (normed.dtype != dlogits.dtype) dlinear = pass.ops.scratch.allocate(normed.dtype, dlogits.shape);
  }
  if (scale != 1 || dlinear.data != dlogits.data) ops::scale(pass.ops, dlinear, dlogits, scale);
  if (pass.tp.sliced()) {
    const Linear* const layers[] = {&linear};
    return Linear::backward_sliced(pass, dnormed, layers, {&dlinear, 1}, normed);
  }
  linear.backward(pass, dnormed, dlinear, normed, false);
  sum_over_ranks(pass, dnormed);
}

}  // namespace ingot::nn
