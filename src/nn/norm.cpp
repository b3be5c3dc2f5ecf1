#include "nn/norm.h"

#include "ops/rms_norm.h"

namespace ingot::nn {

void Norm::forward(Pass& pass, const Tensor& y, const Tensor& rstd, const Tensor& x) const {
  ops::rms_norm(pass.ops, y, rstd, x, weight, {.epsilon = epsilon});
}

void Norm::backward(Pass& pass, const Tensor& dx, const Tensor& dy, const Tensor& x, const Tensor& rstd,
                    bool accumulate) const {
  if (trainable < 0) {
    ops::rms_norm_backward(pass.ops, dx, {}, dy, x, weight, rstd, {.accumulate_dx = accumulate});
    return;
  }
  const std::vector<int64_t>& offsets = pass.training->unit_offsets;
  for (size_t u = 0; u + 1 < offsets.size(); ++u) {
    const int64_t from = offsets[u];
    const int64_t to = offsets[u + 1];
    GradientSink& sink = pass.training->sink;
    const GradientSink::Slot slot = sink.open(trainable, static_cast<int64_t>(u), 0);
    ops::rms_norm_backward(pass.ops, dx.slice(from, to), slot.out, dy.slice(from, to), x.slice(from, to), weight,
                           rstd.slice(from, to), {.accumulate_dx = accumulate, .accumulate_dweight = slot.accumulate});
    sink.close(trainable, static_cast<int64_t>(u), 0);
  }
}

}  // namespace ingot::nn
