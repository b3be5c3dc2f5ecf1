// Look-up of token embeddings. Letters: T tokens, V vocabulary, H features.
#pragma once

#include "ops/context.h"
#include "tensor/weight.h"

namespace ingot::ops {

// y [T, H] (f32, bf16 or f16) = row ids[t] of the table [V, H] (any storage). ids [T] i32 in [0, V): checked by the
// caller who made the batch. On devices that the host cannot see, rows of other ids are NaN, and backward passes them
// over.
void embedding(Context& context, const Tensor& y, const Weight& table, const Tensor& ids);

struct Embedding {
  static constexpr const char* name = "embedding";
  using Signature = void(Context&, const Tensor&, const Weight&, const Tensor&);
};

// dtable [V, H] f32 (+)= dy [T, H] (f32 or bf16) into rows ids[t], tokens of a row in order of t whatever the threads.
// Without `accumulate` rows that no token has become 0.
void embedding_backward(Context& context, const Tensor& dtable, const Tensor& dy, const Tensor& ids, bool accumulate);

struct EmbeddingBackward {
  static constexpr const char* name = "embedding_backward";
  using Signature = void(Context&, const Tensor&, const Tensor&, const Tensor&, bool);
};

}  // namespace ingot::ops
