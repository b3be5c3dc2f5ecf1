#include "nn/sliced_sum.h"

#include <bit>

#include "nn/transfer.h"
#include "ops/columns.h"
#include "ops/elementwise.h"

namespace ingot::nn {

namespace {

void sum_subtree(Pass& pass, const Tensor& sum, int64_t first, int64_t count,
                 FunctionRef<void(int64_t, const Tensor&)> term) {
  if (count == 1) return term(first, sum);
  sum_subtree(pass, sum, first, count / 2, term);
  const Arena::Scope scope(pass.ops.scratch);
  const Tensor other = pass.ops.scratch.allocate(DType::f32, sum.shape);
  sum_subtree(pass, other, first + count / 2, count / 2, term);
  ops::add(pass.ops, sum, sum, other);
}

}  // namespace

void sum_slices(Pass& pass, const Tensor& sum, FunctionRef<void(int64_t, const Tensor&)> term) {
  sum_subtree(pass, sum, 0, pass.tp.own_slices, term);
  add_tree_over_ranks(pass, sum);
}

size_t sum_slices_bytes(int64_t elements, const PassShape& shape) {
  const auto own = static_cast<uint64_t>(shape.slices / shape.tp);
  return static_cast<size_t>(std::bit_width(own) - 1) * Arena::footprint(DType::f32, Shape{elements});
}

Tensor columns_of(Pass& pass, const Tensor& x, spec::Range columns) {
  if (columns.count() == x.shape[1]) return x;
  const Tensor part = pass.ops.scratch.allocate(x.dtype, Shape{x.shape[0], columns.count()});
  ops::gather_columns(pass.ops, part, x, {.width = columns.count(), .offset = columns.begin});
  return part;
}

}  // namespace ingot::nn
