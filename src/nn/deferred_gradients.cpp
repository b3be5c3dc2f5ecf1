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
  Deferred deferred{&layer, copy(dy), x, x.data};
  if (pass.training->recompute != spec::Recompute::none) {
    // Layers with one input follow each other.
    const bool again = !list_.empty() && list_.back().source == x.data;
    deferred.x = again ? list_.back().x : copy(x);
  }
  list_.push_back(deferred);
}

void DeferredGradients::compute(Pass& pass) {
  for (const Deferred& deferred : list_) deferred.layer->add_gradients(pass, deferred.dy, deferred.x);
  list_.clear();
}

}  // namespace ingot::nn
