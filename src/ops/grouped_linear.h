// Linear layers of E experts over rows that are grouped by expert (ops/moe.h), as one gemm. Letters: N grouped rows, E
// experts, I in, O out, T tokens.
//
// offsets [E + 1] i32, as moe_group assigns them: rows offsets[e] .. offsets[e + 1] of the N belong to expert e. They
// ascend from 0 to N, else ErrorKind::internal on devices whose memory the host can see. Others read them where they
// are: nothing is copied, and the launches depend on the shapes alone. Experts without rows are allowed.
#pragma once

#include <cstdint>
#include <span>

#include "ops/context.h"
#include "tensor/weight.h"

namespace ingot::ops {

struct GroupedLinearAttributes {
  bool accumulate = false;     // add to the output instead of assigning
  bool row_invariant = false;  // as LinearAttributes::row_invariant, where `max_rows` is the number of rows
  int64_t max_rows = 0;        // no expert has more rows: T
};

// y [N, O]: the rows of expert e are those of x [N, I] times the transpose of weights[e] [O, I]. Dtypes, storages and
// rounding are those of linear (ops/matmul.h), and so are the bits of a row, except that a decoded weight is never
// summed in slices, and that without row_invariant few rows may be summed in the order of many. (On GPUs a vendor's
// library, whose order may be another, may compute linear, linear_backward_input and matmul, and never the ops here.)
void grouped_linear(Context& context, const Tensor& y, const Tensor& x, std::span<const Weight> weights,
                    const Tensor& offsets, GroupedLinearAttributes attributes);

struct GroupedLinear {
  static constexpr const char* name = "grouped_linear";
  using Signature = void(Context&, const Tensor&, const Tensor&, std::span<const Weight>, const Tensor&,
                         GroupedLinearAttributes);
  // Each row is multiplied with one expert's weight.
  static OpWork work(std::span<const Tensor> tensors) { return gemm_work(tensors); }
};

// The input gradient: dx [N, I] = dy [N, O] weights[e], as linear_backward_input.
void grouped_linear_backward_input(Context& context, const Tensor& dx, const Tensor& dy,
                                   std::span<const Weight> weights, const Tensor& offsets,
                                   GroupedLinearAttributes attributes);

struct GroupedLinearBackwardInput {
  static constexpr const char* name = "grouped_linear_backward_input";
  using Signature = void(Context&, const Tensor&, const Tensor&, std::span<const Weight>, const Tensor&,
                         GroupedLinearAttributes);
  static OpWork work(std::span<const Tensor> tensors) { return gemm_work(tensors); }
};

struct GroupedWeightGradientAttributes {
  int64_t expert = 0;
  int64_t token_begin = 0, token_end = 0;  // the tokens whose rows are summed
  int64_t batch_tokens = 0;                // T
  bool accumulate = false;                 // add to dw instead of assigning
};

// The weight gradient of one expert over some tokens, an accumulation unit: dw [O, I] f32 (+)= dy^T x over the rows of
// the expert whose token is in [token_begin, token_end); zeros if there are none. dy [N, O] and x [N, I], both f32 or
// both bf16. token_of_row [N] i32: the token of each row, ascending within an expert. Sums in fp32 in the order of
// rows, as matmul with transpose_a.
void grouped_weight_gradient(Context& context, const Tensor& dw, const Tensor& dy, const Tensor& x,
                             const Tensor& offsets, const Tensor& token_of_row,
                             GroupedWeightGradientAttributes attributes);

struct GroupedWeightGradient {
  static constexpr const char* name = "grouped_weight_gradient";
  using Signature = void(Context&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                         GroupedWeightGradientAttributes);
  // How many of the N rows a call sums is only on the device. Each call counts the mean over experts and tokens, so the
  // calls for all experts and all tokens have the work of one gemm over N rows.
  static OpWork work(const Tensor& dw, const Tensor& dy, const Tensor& x, const Tensor& offsets,
                     const Tensor& token_of_row, GroupedWeightGradientAttributes attributes);
};

}  // namespace ingot::ops
