#include "ops/grouped_linear.h"

#include <algorithm>

#include "ops/check.h"
#include "ops/registry.h"

namespace ingot::ops {
namespace {

void check_offsets(const char* op, const Context& context, const Tensor& offsets) {
  check_rank(op, "offsets", offsets, 1);
  check_dtype(op, "offsets", offsets, {DType::i32});
  check_device(op, "offsets", context, offsets);
}

// Checks that there is a weight for every expert, and that all have one shape.
void check_weights(const char* op, const Context& context, std::span<const Weight> weights, const Tensor& offsets) {
  check_offsets(op, context, offsets);
  if (weights.empty() || std::ssize(weights) + 1 != offsets.shape[0]) {
    throw_error(ErrorKind::internal, "{}: {} weights for offsets {}", op, weights.size(), offsets.text());
  }
  for (const Weight& weight : weights) {
    check_device(op, "weight", context, weight);
    if (weight.out != weights[0].out || weight.in != weights[0].in) {
      throw_error(ErrorKind::internal, "{}: weights {} and {}", op, weights[0].text(), weight.text());
    }
  }
}

}  // namespace

void grouped_linear(Context& context, const Tensor& y, const Tensor& x, std::span<const Weight> weights,
                    const Tensor& offsets, GroupedLinearAttributes attributes) {
  const char* op = GroupedLinear::name;
  check_weights(op, context, weights, offsets);
  check_linear(op, context, y, "y", weights[0].out, x, "x", weights[0].in, weights[0], forward_types);
  if (y.elements() == 0) return;
  dispatch<GroupedLinear>(context, y, x, weights, offsets, attributes);
}

void grouped_linear_backward_input(Context& context, const Tensor& dx, const Tensor& dy,
                                   std::span<const Weight> weights, const Tensor& offsets,
                                   GroupedLinearAttributes attributes) {
  const char* op = GroupedLinearBackwardInput::name;
  check_weights(op, context, weights, offsets);
  check_linear(op, context, dx, "dx", weights[0].in, dy, "dy", weights[0].out, weights[0], optimizer_types);
  if (dx.elements() == 0) return;
  dispatch<GroupedLinearBackwardInput>(context, dx, dy, weights, offsets, attributes);
}

void grouped_weight_gradient(Context& context, const Tensor& dw, const Tensor& dy, const Tensor& x,
                             const Tensor& offsets, const Tensor& token_of_row,
                             GroupedWeightGradientAttributes attributes) {
  const char* op = GroupedWeightGradient::name;
  check_offsets(op, context, offsets);
  check_rank(op, "dw", dw, 2);
  check(op, "dw", context, dw, dw.shape, {DType::f32});
  check_rank(op, "x", x, 2);
  check(op, "x", context, x, {x.shape[0], dw.shape[1]}, optimizer_types);
  check(op, "dy", context, dy, {x.shape[0], dw.shape[0]}, {x.dtype});
  check(op, "token_of_row", context, token_of_row, {x.shape[0]}, {DType::i32});
  if (attributes.expert < 0 || attributes.expert + 1 >= offsets.shape[0]) {
    throw_error(ErrorKind::internal, "{}: expert {} of offsets {}", op, attributes.expert, offsets.text());
  }
  if (attributes.token_begin < 0 || attributes.token_end < attributes.token_begin ||
      attributes.token_end > attributes.batch_tokens) {
    throw_error(ErrorKind::internal, "{}: tokens {} to {} of {}", op, attributes.token_begin, attributes.token_end,
                attributes.batch_tokens);
  }
  if (dw.elements() == 0) return;
  dispatch<GroupedWeightGradient>(context, dw, dy, x, offsets, token_of_row, attributes);
}

OpWork GroupedWeightGradient::work(const Tensor& dw, const Tensor& dy, const Tensor& x, const Tensor& offsets,
                                   const Tensor&, GroupedWeightGradientAttributes attributes) {
  const auto tokens = static_cast<double>(attributes.token_end - attributes.token_begin);
  const int64_t experts = offsets.shape[0] - 1;
  OpWork work{.gemm = {dw.shape[0], dw.shape[1], x.shape[0]}, .wide = x.dtype == DType::f32};
  work.share = tokens / static_cast<double>(std::max<int64_t>(experts * attributes.batch_tokens, 1));
  work.bytes = static_cast<double>(dw.bytes()) + work.share * static_cast<double>(dy.bytes() + x.bytes());
  return work;
}

}  // namespace ingot::ops
