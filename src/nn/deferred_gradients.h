// Gradients of linear layers' weights that are computed after the backward pass, so that the gradients of inputs, which
// another pipeline stage waits for, come first (Qi et al. 2023, arXiv 2401.10241).
#pragma once

#include <vector>

#include "nn/pass.h"
#include "tensor/arena.h"

namespace ingot::nn {

struct Linear;

class DeferredGradients {
 public:
  // Copies are allocated from `arena`, which outlives this: spec::deferred_gradient_bytes.
  explicit DeferredGradients(Arena& arena) : arena_(&arena) {}

  // Keeps a copy of dy [T, O] and, unless backward saves all rows of every activation, of x [T, I], the arguments of
  // Linear::backward. `layer` outlives this.
  void add(Pass& pass, const Linear& layer, const Tensor& dy, const Tensor& x);
  // Adds the gradients to the accumulator, in the order of add(), and forgets them. `pass` is over the same batch.
  void compute(Pass& pass);
  // Forgets them; the arena's owner frees the memory.
  void clear() { list_.clear(); }

 private:
  struct Deferred {
    const Linear* layer = nullptr;
    Tensor dy, x;
  };
  Arena* arena_;
  std::vector<Deferred> list_;
};

}  // namespace ingot::nn
