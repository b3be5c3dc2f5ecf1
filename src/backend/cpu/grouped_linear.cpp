// The gemm of each expert, one after another: on a device whose memory the host sees, which reads the offsets.
#include "ops/grouped_linear.h"

#include <algorithm>

#include "backend/cpu/grouped_rows.h"
#include "backend/cpu/ops.h"
#include "ops/matmul.h"

namespace ingot::cpu {
namespace {

using ops::Context;

void run_linear(Context& context, const Tensor& y, const Tensor& x, std::span<const Weight> weights,
                const Tensor& offsets, ops::GroupedLinearAttributes attributes) {
  const int32_t* rows = checked_offsets(ops::GroupedLinear::name, offsets, y.rows());
  for (size_t e = 0; e < weights.size(); ++e) {
    ops::linear(context, y.slice(rows[e], rows[e + 1]), x.slice(rows[e], rows[e + 1]), weights[e],
                {.accumulate = attributes.accumulate, .row_invariant = attributes.row_invariant});
  }
}

void run_linear_backward_input(Context& context, const Tensor& dx, const Tensor& dy, std::span<const Weight> weights,
                               const Tensor& offsets, ops::GroupedLinearAttributes attributes) {
  const int32_t* rows = checked_offsets(ops::GroupedLinearBackwardInput::name, offsets, dx.rows());
  for (size_t e = 0; e < weights.size(); ++e) {
    ops::linear_backward_input(context, dx.slice(rows[e], rows[e + 1]), dy.slice(rows[e], rows[e + 1]), weights[e],
                               {.accumulate = attributes.accumulate});
  }
}

void run_weight_gradient(Context& context, const Tensor& dw, const Tensor& dy, const Tensor& x, const Tensor& offsets,
                         const Tensor& token_of_row, ops::GroupedWeightGradientAttributes attributes) {
  const int32_t* rows = checked_offsets(ops::GroupedWeightGradient::name, offsets, x.rows()) + attributes.expert;
  const int32_t* all = token_of_row.as<int32_t>();
  const auto row_of = [&](int64_t token) { return std::lower_bound(all + rows[0], all + rows[1], token) - all; };
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
