// Embedding lookup. Letters: T tokens, V vocabulary, H features.
#pragma once

#include <algorithm>

#include "ops/context.h"
#include "tensor/weight.h"

namespace ingot::ops {

// For a table that is rows [first, first + V) of a larger one, whose other rows are elsewhere.
struct TablePart {
  int64_t first = 0;
  bool is_part = false;
};

// y [T, H] (f32, bf16 or f16) = row ids[t] of the table [V, H] (any storage). ids [T] i32 in [0, V), which the caller
// that made the batch has checked. On devices whose memory the host cannot see, rows of other ids are NaN, and backward
// skips them. With part.is_part ids are those of the larger table: y is 0 for ids of other rows, and backward skips
// them.
void embedding(Context& context, const Tensor& y, const Weight& table, const Tensor& ids, TablePart part = {});

struct Embedding {
  static constexpr const char* name = "embedding";
  using Signature = void(Context&, const Tensor&, const Weight&, const Tensor&, TablePart);
  static OpWork work(std::span<const Tensor> tensors) {
    OpWork whole = plain_work(tensors);
    whole.bytes = 2.0 * static_cast<double>(tensors[0].bytes());  // of the table only the looked-up rows
    return whole;
  }
};

// dtable [V, H] f32 (+)= dy [T, H] (f32 or bf16) into rows ids[t]. The tokens of a row are added in order of t,
// whatever the number of threads. Without `accumulate`, rows without a token become 0.
void embedding_backward(Context& context, const Tensor& dtable, const Tensor& dy, const Tensor& ids, bool accumulate,
                        TablePart part = {});

struct EmbeddingBackward {
  static constexpr const char* name = "embedding_backward";
  using Signature = void(Context&, const Tensor&, const Tensor&, const Tensor&, bool, TablePart);
  static OpWork work(std::span<const Tensor> tensors) {
    OpWork whole = plain_work(tensors);
    whole.bytes = std::min(whole.bytes, 3.0 * static_cast<double>(tensors[1].bytes()));  // at least the touched rows
    return whole;
  }
};

}  // namespace ingot::ops
