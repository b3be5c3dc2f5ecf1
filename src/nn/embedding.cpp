#include "nn/embedding.h"

#include "ops/embedding.h"

namespace ingot::nn {

void Embedding::forward(Pass& pass, const Tensor& x) const { ops::embedding(pass.ops, x, table, pass.batch.ids); }

void Embedding::backward(Pass& pass, const Tensor& dx) const {
  if (trainable < 0) return;
  const Training& training = *pass.training;
  for (size_t u = 0; u + 1 < training.unit_offsets.size(); ++u) {
    const int64_t unit = static_cast<int64_t>(u);
    const int64_t from = training.unit_offsets[u];
    const int64_t to = training.unit_offsets[u + 1];
    const GradientSink::Slot slot = training.sink.open(trainable, unit, tied ? 1 : 0);
    ops::embedding_backward(pass.ops, slot.out, dx.slice(from, to), pass.batch.ids.slice(from, to), slot.accumulate);
    training.sink.close(trainable, unit, tied ? 1 : 0);
  }
}

}  // namespace ingot::nn
