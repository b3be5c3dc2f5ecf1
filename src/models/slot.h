// The activations of one micro-batch between its forward and its backward pass. Where several micro-batches are in
// flight, as in a pipeline, each has a slot of its own. Letters: T tokens, with sequence parallelism this rank's share
// of them; H hidden.
#pragma once

#include <vector>

#include "nn/block_state.h"
#include "nn/deferred_gradients.h"
#include "nn/norm.h"
#include "tensor/arena.h"

namespace ingot::models {

// Model::forward fills a slot, Model::loss and Model::backward use it; then its owner clears it for the next
// micro-batch. One thread at a time.
struct Slot {
  // `arena` is this slot's alone and is emptied; `shared` has what is needed during a pass only, and slots may share
  // it. Both outlive the slot: spec::saved_bytes. For losses without training `arena` must have room for one [T, H] of
  // activations, on a later stage of a pipeline for two, and `shared` on an earlier stage for one.
  Slot(Arena& arena, Arena& shared) : arena(arena), shared(shared), deferred(arena) { arena.release(0); }

  // For a later stage of a pipeline, before Model::forward: memory for its input, to be filled by the caller.
  const Tensor& begin_forward(DType activation, const Shape& shape) {
    input = arena.allocate(activation, shape);
    return input;
  }
  // For an earlier stage, before Model::backward: memory for the gradient of its output, to be filled by the caller. It
  // is shared, so no other slot's pass may come between.
  const Tensor& begin_backward() const { return dresidual; }

  // Forgets the micro-batch and frees its memory.
  void clear() {
    states.clear();
    input = residual = normed = dresidual = {};
    statistics = {};
    deferred.clear();
    arena.release(0);
  }

  Arena& arena;
  Arena& shared;
  std::vector<nn::BlockState> states;  // of the blocks that run backward, in order
  Tensor input;                        // [T, H] on later stages: what the stage before computed
  Tensor residual;                     // [T, H] after the last block; on earlier stages until another slot's pass
  Tensor normed;                       // [T, H] the final norm's output; the last stage only
  nn::NormStatistics statistics;       // of the final norm
  // [T, H]: the gradient of `residual`; after Model::backward that of `input`, where it was asked for.
  Tensor dresidual;
  // Where Training::deferred asks for it: the gradients of weights that Model::backward has left.
  nn::DeferredGradients deferred;
};

}  // namespace ingot::models
