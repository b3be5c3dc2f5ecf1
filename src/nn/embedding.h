// Token embedding and, for learned positions, position embedding. Letters: T tokens, V vocabulary, P positions, H
// hidden.
#pragma once

#include "nn/pass.h"
#include "ops/embedding.h"
#include "tensor/weight.h"

namespace ingot::nn {

struct Embedding {
  Weight table;         // [V, H], or this rank's rows of it (spec::vocabulary_of)
  ops::TablePart part;  // which ones
  Weight positions;     // [P, H], absent when positions are not learned
  float scale = 1;      // of the token embeddings, rounded to the activation dtype
  size_t parameter = 0;
  size_t positions_parameter = 0;
  int trainable = -1;
  int positions_trainable = -1;
  bool tied = false;  // the table is also the output head

  bool has_trainable() const { return trainable >= 0 || positions_trainable >= 0; }

  // x [T, H], or this rank's rows of it (nn/row_exchange.h): scale times the token embeddings of the batch's ids, plus
  // the position embeddings of its positions.
  void forward(Pass& pass, const Tensor& x) const;
  // Adds the tables' gradients to the accumulator, one accumulation unit at a time; does nothing for a frozen table.
  // `own`: the gradient of x. Overwrites it.
  void backward(Pass& pass, const Tensor& own) const;

  // Scratch bytes of forward.
  static size_t bytes(const spec::ModelSpec& model, const PassShape& shape);

 private:
  float scale_in(DType type) const;
};

}  // namespace ingot::nn
