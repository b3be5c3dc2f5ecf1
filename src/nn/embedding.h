// Token embedding, and that of positions where they are learned. Letters: T tokens, V vocabulary, P positions, H
// hidden.
#pragma once

#include "nn/pass.h"
#include "tensor/weight.h"

namespace ingot::nn {

struct Embedding {
  Weight table;      // [V, H]
  Weight positions;  // [P, H], absent where positions are not learned
  float scale = 1;   // of the tokens' embeddings, rounded to the activations' type
  size_t parameter = 0;
  size_t positions_parameter = 0;
  int trainable = -1;
  int positions_trainable = -1;
  bool tied = false;  // the table is the output head too

  bool trained() const { return trainable >= 0 || positions_trainable >= 0; }

  // x [T, H]: scale times the rows of the batch's ids, plus the rows of its positions.
  void forward(Pass& pass, const Tensor& x) const;
  // The tables' gradients into the sink, a unit at a time; nothing for a frozen one. Overwrites dx.
  void backward(Pass& pass, const Tensor& dx) const;

  // Scratch bytes of forward.
  static size_t bytes(const spec::ModelSpec& model, const PassShape& shape);

 private:
  float scale_in(DType type) const;
};

}  // namespace ingot::nn
