// Choosing the next token of every sequence of a batch. Letters: R rows, V vocabulary, N of the most likely tokens that
// are told, E edits, M masks.
#pragma once

#include "ops/context.h"

namespace ingot::ops {

// How each row's token is chosen; infer/sampler.h says what it is made of.
struct SamplingRows {
  // [R, 2] f32: log2(e) / temperature, 0 for the most likely token; log2(min_p), -infinity for all.
  Tensor scales;
  // [R, 5] i32: top_k, 0 for all; ceil(top_p 2^32) from 1 on as unsigned bits, 0 for all; a random word of 64 bits, the
  // low half first; the row of `masks`, -1 for none.
  Tensor cuts;
  Tensor masks;         // [M, (V + 31) / 32] i32: bit t % 32 of word t / 32: token t may come; absent when M is 0
  Tensor edit_offsets;  // [R + 1] i32: edits of row r are edit_offsets[r] .. edit_offsets[r + 1]
  Tensor edit_ids;      // [E] i32, each once a row; absent when E is 0
  // [E, 3] f32: a logit becomes logit * (logit > 0 ? first : second) + third. Used up: left undefined.
  Tensor edit_values;
};

// In chosen [R, 1 + N] i32 the token of the row, then its N most likely tokens under the unchanged logits, most likely
// first, of equal ones the lowest; -1 in place of the token when a logit is NaN or +infinity, -2 when none may come
// (what else the row gets then is undefined). In logprobs [R, 1 + N] f32 the natural logs of their probabilities under
// the unchanged logits. N < V. The logits [R, V] f32, V at most 2^22, are used up: left undefined.
//
// The choices are those of infer::choose, on every device: logits are ordered as they are, weights are integers
// (ops/sampling_weight.h), and so are their sums. Of log-probabilities the last bits are the device's own.
void sample(Context& context, const Tensor& chosen, const Tensor& logprobs, const Tensor& logits,
            const SamplingRows& rows);

struct Sample {
  static constexpr const char* name = "sample";
  using Signature = void(Context&, const Tensor&, const Tensor&, const Tensor&, const SamplingRows&);
};

}  // namespace ingot::ops
