#include "nn/deferred_gradients.h"

#include "nn/linear.h"
#include "ops/elementwise.h"

namespace ingot::nn {

void DeferredGradients::add(Pass& pass, const Linear& layer, const Tensor& dy, const Tensor& x) {
  const auto copy = [&](const Tensor& from) {
    const Tensor to = arena_->allocate(from.dtype, from.shape);
    ops::scale(pass.ops, to, from, 1);
    return to;
  };
  // Recomputed activations of all blocks use the same memory, and gathered rows are in scratch memory.
  const bool keeps_x = pass.training->recompute == spec::Recompute::none && pass.tp.rows == nullptr;
  list_.push_back({&layer, copy(dy), keeps_x ? x : copy(x)});
}

void DeferredGradients::compute(Pass& pass) {
  for (const Deferred& deferred : list_) deferred.layer->add_gradients(pass, deferred.dy, deferred.x);
  list_.clear();
}

}  // namespace ingot::nn
