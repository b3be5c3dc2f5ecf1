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

// Checks the arguments that combine rows of z [T K, H] at `places` [T, K] into the rows of y [T, H].
void check_combined(const char* op, const Context& context, const char* y_name, const Tensor& y, const Tensor& places,
                    std::initializer_list<DType> types) {
  check_rank(op, y_name, y, 2);
  check_dtype(op, y_name, y, types);
  check_device(op, y_name, context, y);
  check_rank(op, "places", places, 2);
  check(op, "places", context, places, {y.shape[0], places.shape[1]}, {DType::i32});
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

void moe_group(Context& context, const Tensor& rows, const Tensor& places, const Tensor& offsets,
               const Tensor& experts) {
  const char* op = MoeGroup::name;
  check_rank(op, "offsets", offsets, 1);
  check_dtype(op, "offsets", offsets, {DType::i32});
  check_device(op, "offsets", context, offsets);
  check_choices(op, context, experts, offsets.shape[0] - 1);
  check(op, "rows", context, rows, {experts.elements()}, {DType::i32});
  check(op, "places", context, places, {experts.elements()}, {DType::i32});
  dispatch<MoeGroup>(context, rows, places, offsets, experts);
}

void gather_rows(Context& context, const Tensor& y, const Tensor& x, const Tensor& rows) {
  const char* op = GatherRows::name;
  check_rank(op, "x", x, 2);
  check_dtype(op, "x", x, forward_types);
  check_device(op, "x", context, x);
  check_rank(op, "rows", rows, 1);
  check_dtype(op, "rows", rows, {DType::i32});
  check_device(op, "rows", context, rows);
  check(op, "y", context, y, {rows.shape[0], x.shape[1]}, {x.dtype});
  if (y.elements() == 0) return;
  dispatch<GatherRows>(context, y, x, rows);
}

void combine_rows(Context& context, const Tensor& y, const Tensor& z, const Tensor& places, const Tensor& weights,
                  bool accumulate) {
  const char* op = CombineRows::name;
  check_combined(op, context, "y", y, places, forward_types);
  check(op, "z", context, z, {places.elements(), y.shape[1]}, {y.dtype});
  if (weights) check(op, "weights", context, weights, places.shape, {DType::f32});
  if (y.elements() == 0) return;
  dispatch<CombineRows>(context, y, z, places, weights, accumulate);
}

void combine_rows_backward(Context& context, const Tensor& dz, const Tensor& dweights, const Tensor& dy,
                           const Tensor& z, const Tensor& places, const Tensor& weights) {
  const char* op = CombineRowsBackward::name;
  check_combined(op, context, "dy", dy, places, optimizer_types);
  check(op, "dz", context, dz, {places.elements(), dy.shape[1]}, {dy.dtype});
  check(op, "weights", context, weights, places.shape, {DType::f32});
  if (dweights) {
    check(op, "dweights", context, dweights, places.shape, {DType::f32});
    check(op, "z", context, z, dz.shape, {dz.dtype});
  }
  if (dy.elements() == 0) return;
  dispatch<CombineRowsBackward>(context, dz, dweights, dy, z, places, weights);
}

}  // namespace ingot::ops
