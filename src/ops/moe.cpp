#include "ops/moe.h"

#include "ops/check.h"
#include "ops/registry.h"

namespace ingot::ops {
namespace {

void check_choices(const char* op, const Context& context, const Tensor& experts, int64_t num_experts) {
  check_rank(op, "experts", experts, 2);
  check_dtype(op, "experts", experts, {DType::i32});
  check_device(op, "experts", context, experts);
  if (experts.shape[1] < 1 || experts.shape[1] > num_experts) {
    throw_error(ErrorKind::internal, "{}: cannot choose {} experts per token out of {}", op, experts.shape[1],
                num_experts);
  }
}

// Checks the arguments that combine rows of z [T K, H] at `row_of_choice` [T, K] into the rows of y [T, H].
void check_combined(const char* op, const Context& context, const char* y_name, const Tensor& y,
                    const Tensor& row_of_choice, std::initializer_list<DType> types) {
  check_rank(op, y_name, y, 2);
  check_dtype(op, y_name, y, types);
  check_device(op, y_name, context, y);
  check_rank(op, "row_of_choice", row_of_choice, 2);
  check(op, "row_of_choice", context, row_of_choice, {y.shape[0], row_of_choice.shape[1]}, {DType::i32});
}

}  // namespace

void moe_route(Context& context, const Tensor& experts, const Tensor& weights, const Tensor& logits) {
  const char* op = MoeRoute::name;
  check_rank(op, "logits", logits, 2);
  check_dtype(op, "logits", logits, forward_types);
  check_device(op, "logits", context, logits);
  check_choices(op, context, experts, logits.shape[1]);
  check(op, "experts", context, experts, {logits.shape[0], experts.shape[1]}, {DType::i32});
  check(op, "weights", context, weights, experts.shape, {DType::f32});
  if (experts.elements() == 0) return;
  dispatch<MoeRoute>(context, experts, weights, logits);
}

void moe_route_backward(Context& context, const Tensor& dlogits, const Tensor& dweights, const Tensor& experts,
                        const Tensor& weights) {
  const char* op = MoeRouteBackward::name;
  check_rank(op, "dlogits", dlogits, 2);
  check_dtype(op, "dlogits", dlogits, optimizer_types);
  check_device(op, "dlogits", context, dlogits);
  check_choices(op, context, experts, dlogits.shape[1]);
  check(op, "experts", context, experts, {dlogits.shape[0], experts.shape[1]}, {DType::i32});
  check(op, "weights", context, weights, experts.shape, {DType::f32});
  check(op, "dweights", context, dweights, experts.shape, {DType::f32});
  if (experts.elements() == 0) return;
  dispatch<MoeRouteBackward>(context, dlogits, dweights, experts, weights);
}

void moe_group(Context& context, const Tensor& token_of_row, const Tensor& row_of_choice, const Tensor& offsets,
               const Tensor& experts) {
  const char* op = MoeGroup::name;
  check_rank(op, "offsets", offsets, 1);
  check_dtype(op, "offsets", offsets, {DType::i32});
  check_device(op, "offsets", context, offsets);
  check_choices(op, context, experts, offsets.shape[0] - 1);
  check(op, "token_of_row", context, token_of_row, {experts.elements()}, {DType::i32});
  check(op, "row_of_choice", context, row_of_choice, {experts.elements()}, {DType::i32});
  dispatch<MoeGroup>(context, token_of_row, row_of_choice, offsets, experts);
}

void gather_rows(Context& context, const Tensor& y, const Tensor& x, const Tensor& token_of_row) {
  const char* op = GatherRows::name;
  check_rank(op, "x", x, 2);
  check_dtype(op, "x", x, forward_types);
  check_device(op, "x", context, x);
  check_rank(op, "token_of_row", token_of_row, 1);
  check_dtype(op, "token_of_row", token_of_row, {DType::i32});
  check_device(op, "token_of_row", context, token_of_row);
  check(op, "y", context, y, {token_of_row.shape[0], x.shape[1]}, {x.dtype});
  if (y.elements() == 0) return;
  dispatch<GatherRows>(context, y, x, token_of_row);
}

void combine_rows(Context& context, const Tensor& y, const Tensor& z, const Tensor& row_of_choice,
                  const Tensor& weights, bool accumulate) {
  const char* op = CombineRows::name;
  check_combined(op, context, "y", y, row_of_choice, forward_types);
  check(op, "z", context, z, {row_of_choice.elements(), y.shape[1]}, {y.dtype});
  if (weights) check(op, "weights", context, weights, row_of_choice.shape, {DType::f32});
  if (y.elements() == 0) return;
  dispatch<CombineRows>(context, y, z, row_of_choice, weights, accumulate);
}

void combine_rows_backward(Context& context, const Tensor& dz, const Tensor& dweights, const Tensor& dy,
                           const Tensor& z, const Tensor& row_of_choice, const Tensor& weights) {
  const char* op = CombineRowsBackward::name;
  check_combined(op, context, "dy", dy, row_of_choice, optimizer_types);
  check(op, "dz", context, dz, {row_of_choice.elements(), dy.shape[1]}, {dy.dtype});
  check(op, "weights", context, weights, row_of_choice.shape, {DType::f32});
  if (dweights) {
    check(op, "dweights", context, dweights, row_of_choice.shape, {DType::f32});
    check(op, "z", context, z, dz.shape, {dz.dtype});
  }
  if (dy.elements() == 0) return;
  dispatch<CombineRowsBackward>(context, dz, dweights, dy, z, row_of_choice, weights);
}

}  // namespace ingot::ops
