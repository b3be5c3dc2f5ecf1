// The activations of one micro-batch between its forward and its backward pass. Where several micro-batches are in
// flight, as in a pipeline, each has a slot of its own. Letters: T tokens, H hidden.
#pragma once

#include <vector>

#include "nn/block_state.h"
#include "nn/norm.h"
#include "tensor/arena.h"

namespace ingot::models {

// Model::forward fills a slot, Model::loss and Model::backward use it. One thread at a time.
struct Slot {
  // `arena` is this slot's alone and must outlive it: spec::saved_bytes for training; for losses without training one
  // [T, H] of activations.
  explicit Slot(Arena& arena) : arena(arena) {}

  // Forgets the micro-batch and frees its memory.
  void clear() {
    states.clear();
    residual = normed = dresidual = {};
    statistics = {};
    arena.release(0);
  }

  Arena& arena;
  std::vector<nn::BlockState> states;  // of the blocks that run backward, in order
  Tensor residual;                     // [T, H] after the last block of this part of the model
  Tensor normed;                       // [T, H] the final norm's output; the last stage only
  nn::NormStatistics statistics;       // of the final norm
  Tensor dresidual;                    // [T, H] the gradient of `residual`, from the loss on
};

}  // namespace ingot::models
