// The gemm of each expert, one after another: on a device whose memory the host sees, which reads the offsets.
#include "ops/grouped_linear.h"

#include <algorithm>

#include "backend/cpu/ops.h"
#include "base/error.h"
#include "ops/matmul.h"

namespace ingot::cpu {
namespace {

using ops::Context;

struct Rows {
  int64_t begin, end;
};

// The rows of an expert. ErrorKind::internal when offsets do not ascend from 0 to `count`.
Rows rows_of(const char* op, const Tensor& offsets, size_t expert, int64_t count) {
  const int32_t* at = offsets.as<int32_t>() + expert;
  if (at[0] < 0 || at[1] < at[0] || at[1] > count) {
    throw_error(ErrorKind::internal, "{}: expert {} has rows {} to {} of {}", op, expert, at[0], at[1], count);
  }
  return {at[0], at[1]};
}

void run_linear(Context& context, const Tensor& y, const Tensor& x, std::span<const Weight> weights,
                const Tensor& offsets, ops::GroupedLinearAttributes attributes) {
  for (size_t e = 0; e < weights.size(); ++e) {
    const Rows rows = rows_of(ops::GroupedLinear::name, offsets, e, y.rows());
    ops::linear(context, y.slice(rows.begin, rows.end), x.slice(rows.begin, rows.end), weights[e],
                {.accumulate = attributes.accumulate, .row_invariant = attributes.row_invariant});
  }
}

void run_linear_backward_input(Context& context, const Tensor& dx, const Tensor& dy, std::span<const Weight> weights,
                               const Tensor& offsets, ops::GroupedLinearAttributes attributes) {
  for (size_t e = 0; e < weights.size(); ++e) {
    const Rows rows = rows_of(ops::GroupedLinearBackwardInput::name, offsets, e, dx.rows());
    ops::linear_backward_input(context, dx.slice(rows.begin, rows.end), dy.slice(rows.begin, rows.end), weights[e],
                               {.accumulate = attributes.accumulate});
  }
}

void run_weight_gradient(Context& context, const Tensor& dw, const Tensor& dy, const Tensor& x, const Tensor& offsets,
                         const Tensor& tokens, ops::GroupedWeightGradientAttributes attributes) {
  const Rows rows =
      rows_of(ops::GroupedWeightGradient::name, offsets, static_cast<size_t>(attributes.expert), x.rows());
  const int32_t* all = tokens.as<int32_t>();
  const auto row_of = [&](int64_t token) { return std::lower_bound(all + rows.begin, all + rows.end, token) - all; };
  const int64_t begin = row_of(attributes.token_begin), end = row_of(attributes.token_end);
  ops::matmul(context, dw, dy.slice(begin, end), x.slice(begin, end),
              {.transpose_a = true, .accumulate = attributes.accumulate});
}

}  // namespace

void register_grouped_linear(ops::Registry& registry, Levels) {
  registry.add<ops::GroupedLinear>(DeviceKind::cpu, "by_expert", run_linear);
  registry.add<ops::GroupedLinearBackwardInput>(DeviceKind::cpu, "by_expert", run_linear_backward_input);
  registry.add<ops::GroupedWeightGradient>(DeviceKind::cpu, "by_expert", run_weight_gradient);
}

}  // namespace ingot::cpu
