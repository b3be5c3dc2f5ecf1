#include "nn/norm.h"

#include <algorithm>

#include "ops/elementwise.h"
#include "ops/layer_norm.h"
#include "ops/layer_norm_bytes.h"
#include "ops/rms_norm.h"
#include "ops/rms_norm_bytes.h"

namespace ingot::nn {

namespace {

// The rows of an accumulation unit; every token has the same number of rows.
struct UnitRows {
  int64_t from;
  int64_t to;
};

UnitRows rows_of_unit(const Training& training, size_t unit, const Tensor& x) {
  const std::vector<int64_t>& offsets = training.accumulation_offsets;
  const int64_t rows = x.rows() / offsets.back();
  return {offsets[unit] * rows, offsets[unit + 1] * rows};
}

}  // namespace

void Norm::forward(Pass& pass, const Tensor& y, const NormStatistics& statistics, const Tensor& x) const {
  if (kind == spec::NormKind::rms) {
    ops::rms_norm(pass.ops, y, statistics.rstd, x, weight, {.epsilon = epsilon, .weight_offset = weight_offset});
  } else {
    ops::layer_norm(pass.ops, y, statistics.mean, statistics.rstd, x, weight, bias, epsilon);
  }
}

void Norm::backward_rows(Pass& pass, const Tensor& dx, const GradientAccumulator::Slot& slot, const Tensor& dy,
                         const Tensor& x, const NormStatistics& statistics, bool accumulate) const {
  if (kind == spec::NormKind::rms) {
    ops::rms_norm_backward(
        pass.ops, dx, slot.out, dy, x, weight, statistics.rstd,
        {.accumulate_dx = accumulate, .accumulate_dweight = slot.accumulate, .weight_offset = weight_offset});
  } else {
    ops::layer_norm_backward(pass.ops, dx, slot.out, {}, dy, x, weight, statistics.mean, statistics.rstd,
                             {.accumulate_dx = accumulate, .accumulate_dweight = slot.accumulate});
  }
}

void Norm::backward(Pass& pass, const Tensor& dx, const Tensor& dy, const Tensor& x, const NormStatistics& statistics,
                    bool accumulate) const {
  const Training& training = *pass.training;
  const size_t units = training.accumulation_offsets.size() - 1;
  GradientAccumulator& accumulator = training.accumulator;
  for (size_t u = 0; u < units && bias_trainable >= 0; ++u) {
    const auto [from, to] = rows_of_unit(training, u, x);
    if (from == to) continue;
    const GradientAccumulator::Slot slot = accumulator.open(bias_trainable, static_cast<int64_t>(u), 0);
    ops::add_bias_backward(pass.ops, slot.out, dy.slice(from, to), slot.accumulate);
    accumulator.close(bias_trainable, static_cast<int64_t>(u), 0);
  }
  if (trainable < 0) return backward_rows(pass, dx, {{}, false}, dy, x, statistics, accumulate);
  for (size_t u = 0; u < units; ++u) {
    const auto [from, to] = rows_of_unit(training, u, x);
    if (from == to) continue;
    const NormStatistics part = {statistics.rstd.slice(from, to),
                                 statistics.mean ? statistics.mean.slice(from, to) : Tensor{}};
    const GradientAccumulator::Slot slot = accumulator.open(trainable, static_cast<int64_t>(u), 0);
    backward_rows(pass, dx.slice(from, to), slot, dy.slice(from, to), x.slice(from, to), part, accumulate);
    accumulator.close(trainable, static_cast<int64_t>(u), 0);
  }
}

size_t Norm::bytes(int64_t rows, int64_t features) {
  return std::max(ops::rms_norm_bytes(rows, features), ops::layer_norm_bytes(rows, features));
}

}  // namespace ingot::nn
