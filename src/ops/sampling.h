// Sampling of the next token of every sequence of a batch. Letters: R rows, V vocabulary, C columns of logits, N top
// tokens that are reported, E edits, M masks.
#pragma once

#include "ops/context.h"

namespace ingot::ops {

// Sampling parameters of each row; infer/sampler.h explains where they come from.
struct SamplingRows {
  // [R, 2] f32: log2(e) / temperature, 0 for greedy; log2(min_p), -infinity for no min_p.
  Tensor scales;
  // [R, 5] i32: top_k, 0 for none; ceil(top_p 2^32) as unsigned bits, at least 1, 0 for no top_p; 64 random bits, the
  // low word first; the row of `masks`, -1 for no mask.
  Tensor cuts;
  Tensor masks;         // [M, (V + 31) / 32] i32: bit t % 32 of word t / 32: token t is allowed; absent when M is 0
  Tensor edit_offsets;  // [R + 1] i32: the edits of row r are edit_offsets[r] .. edit_offsets[r + 1]
  Tensor edit_ids;      // [E] i32 token ids, each at most once per row; absent when E is 0
  // [E, 3] f32: a logit becomes logit * (logit > 0 ? first : second) + third. Used as scratch: undefined afterwards.
  Tensor edit_values;
  int64_t vocabulary = 0;  // V, where logits have more columns; 0: all are the vocabulary's
  int64_t vocabulary_of(const Tensor& logits) const { return vocabulary > 0 ? vocabulary : logits.shape[1]; }
};

// chosen [R, 1 + N] i32: the sampled token of the row, then its N most likely tokens under the unedited logits, most
// likely first, of equal ones the lowest id first. Instead of the sampled token it is -1 when a logit is NaN or
// +infinity and -2 when no token is allowed; the rest of the row is undefined then. logprobs [R, 1 + N] f32: the
// natural logs of their probabilities under the unedited logits. N < V. The logits [R, C] f32, of which columns from V
// on (padding, ops/matmul.h) are not read and V is at most 2^22, are used as scratch: undefined afterwards.
//
// Samples the same tokens as infer::choose, on every device: logits are compared exactly, and the weights
// (ops/sampling_weight.h) and their sums are integers. The last bits of log-probabilities depend on the device.
void sample(Context& context, const Tensor& chosen, const Tensor& logprobs, const Tensor& logits,
            const SamplingRows& rows);

struct Sample {
  static constexpr const char* name = "sample";
  using Signature = void(Context&, const Tensor&, const Tensor&, const Tensor&, const SamplingRows&);
};

// Continues texts with tokens that are not on the host yet. ids [T] i32 = known [T] i32, but where known[t] is -1 - r,
// below 0: the token that `sample` wrote for row r, chosen[r, 0] of chosen [R, C] i32, or 0 if that row has no token.
// Rows r must lie in [0, R). ids may be known.
void insert_sampled(Context& context, const Tensor& ids, const Tensor& known, const Tensor& chosen);

struct InsertSampled {
  static constexpr const char* name = "insert_sampled";
  using Signature = void(Context&, const Tensor&, const Tensor&, const Tensor&);
};

}  // namespace ingot::ops
