#include "nn/embedding.h"

#include <algorithm>

#include "base/half.h"
#include "nn/row_exchange.h"
#include "ops/elementwise.h"

namespace ingot::nn {

namespace {

// The gradient of one table, in which token t of the batch looked up row rows[t].
void table_gradient(Pass& pass, int trainable, int use, const Tensor& dx, const Tensor& rows, ops::TablePart part) {
  if (trainable < 0) return;
  const Training& training = *pass.training;
  for (size_t u = 0; u + 1 < training.accumulation_offsets.size(); ++u) {
    const int64_t unit = static_cast<int64_t>(u);
    const int64_t from = training.accumulation_offsets[u];
    const int64_t to = training.accumulation_offsets[u + 1];
    const GradientAccumulator::Slot slot = training.accumulator.open(trainable, unit, use);
    ops::embedding_backward(pass.ops, slot.out, dx.slice(from, to), rows.slice(from, to), slot.accumulate, part);
    training.accumulator.close(trainable, unit, use);
  }
}

}  // namespace

float Embedding::scale_in(DType type) const {
  switch (type) {
    case DType::bf16: return bf16_to_float(float_to_bf16(scale));
    case DType::f16: return f16_to_float(float_to_f16(scale));
    default: return scale;
  }
}

void Embedding::forward(Pass& pass, const Tensor& x) const {
  {
    const Arena::Scope scope(pass.ops.scratch);
    const Tensor all = memory_of_all_rows(pass, x, pass.batch.tokens());
    ops::embedding(pass.ops, all, table, pass.batch.ids, part);
    sum_to_own_rows(pass, x, all);  // of each token one rank has the row, the others zeros
  }
  if (scale != 1) ops::scale(pass.ops, x, x, scale_in(x.dtype));
  if (!positions) return;
  const Arena::Scope scope(pass.ops.scratch);
  const Tensor rows = pass.ops.scratch.allocate(x.dtype, x.shape);
  ops::embedding(pass.ops, rows, positions, own_rows(pass, pass.batch.positions));
  ops::add(pass.ops, x, x, rows);
}

void Embedding::backward(Pass& pass, const Tensor& own) const {
  if (!has_trainable()) return;
  const Arena::Scope scope(pass.ops.scratch);
  const Tensor dx = all_rows(pass, own);
  table_gradient(pass, positions_trainable, 0, dx, pass.batch.positions, {});
  if (trainable >= 0 && scale != 1) ops::scale(pass.ops, dx, dx, scale_in(dx.dtype));
  table_gradient(pass, trainable, tied ? 1 : 0, dx, pass.batch.ids, part);
}

size_t Embedding::bytes(const spec::ModelSpec& model, const PassShape& shape) {
  const size_t positions = model.learned_positions ? shape.matrix_bytes(shape.own_rows(shape.tokens), model.hidden) : 0;
  return std::max(positions, 2 * all_rows_bytes(shape.tokens, model.hidden, shape));
}

}  // namespace ingot::nn
