// Dropless mixture of experts (Jiang et al. 2024, arXiv 2401.04088): routing of tokens to experts, grouping of their
// rows by expert, and combination of the experts' results. Letters: T tokens, E experts, K experts per token, H
// features, N = T K grouped rows.
//
// Where an index out of range is ErrorKind::internal below, devices whose memory the host cannot see
// (Device::host_visible) report no error: values read through the index are NaN, nothing is written through it, and
// moe_group uses the nearest expert.
#pragma once

#include <cstdint>

#include "ops/context.h"
#include "tensor/tensor.h"

namespace ingot::ops {

// experts [T, K] i32: the experts of the token's K largest logits in descending order; of equal logits the lower expert
// first. weights [T, K] f32: softmax over these K logits. logits [T, E], f32, bf16 or f16, K <= E. A NaN logit counts
// as the largest, so the token's weights are NaN too.
void moe_route(Context& context, const Tensor& experts, const Tensor& weights, const Tensor& logits);

struct MoeRoute {
  static constexpr const char* name = "moe_route";
  using Signature = void(Context&, const Tensor&, const Tensor&, const Tensor&);
};

// Assigns dlogits [T, E] (f32 or bf16) from dweights [T, K] f32: w (dw - sum over K of w dw) at the chosen experts, 0
// elsewhere. experts [T, K] i32 in [0, E), else ErrorKind::internal.
void moe_route_backward(Context& context, const Tensor& dlogits, const Tensor& dweights, const Tensor& experts,
                        const Tensor& weights);

struct MoeRouteBackward {
  static constexpr const char* name = "moe_route_backward";
  using Signature = void(Context&, const Tensor&, const Tensor&, const Tensor&, const Tensor&);
};

// Sorts the N choices by expert: the grouped rows of expert e are offsets[e] .. offsets[e + 1], in ascending order of
// token. token_of_row [N] i32: the token of each grouped row; row_of_choice [N] i32: the grouped row of choice t K + k;
// offsets [E + 1] i32. experts [T, K] i32 in [0, E), else ErrorKind::internal.
void moe_group(Context& context, const Tensor& token_of_row, const Tensor& row_of_choice, const Tensor& offsets,
               const Tensor& experts);

struct MoeGroup {
  static constexpr const char* name = "moe_group";
  using Signature = void(Context&, const Tensor&, const Tensor&, const Tensor&, const Tensor&);
};

// y [N, H]: row n is row token_of_row[n] of x [T, H]; both f32, both bf16 or both f16. token_of_row [N] i32 in [0, T),
// else ErrorKind::internal. The backward is combine_rows without weights.
void gather_rows(Context& context, const Tensor& y, const Tensor& x, const Tensor& token_of_row);

struct GatherRows {
  static constexpr const char* name = "gather_rows";
  using Signature = void(Context&, const Tensor&, const Tensor&, const Tensor&);
};

// y [T, H] (+)= sum over k of weights[t, k] z[row_of_choice[t, k]], in order of k, in fp32, rounded once. z [N, H] of
// y's dtype, f32, bf16 or f16; row_of_choice [T, K] i32 in [0, N), else ErrorKind::internal; weights [T, K] f32, 1 when
// absent.
void combine_rows(Context& context, const Tensor& y, const Tensor& z, const Tensor& row_of_choice,
                  const Tensor& weights, bool accumulate);

struct CombineRows {
  static constexpr const char* name = "combine_rows";
  using Signature = void(Context&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, bool);
};

// Assigns dz [N, H]: row row_of_choice[t, k] = weights[t, k] dy[t], and dweights [T, K] f32 = <dy[t],
// z[row_of_choice[t, k]]>. If dweights is absent it is not computed, z is not read, and z may be absent too. Every row
// of dz occurs exactly once in `row_of_choice`. dz may be z.
void combine_rows_backward(Context& context, const Tensor& dz, const Tensor& dweights, const Tensor& dy,
                           const Tensor& z, const Tensor& row_of_choice, const Tensor& weights);

struct CombineRowsBackward {
  static constexpr const char* name = "combine_rows_backward";
  using Signature = void(Context&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                         const Tensor&);
};

}  // namespace ingot::ops
