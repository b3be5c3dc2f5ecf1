// A mixture of MLPs: every token passes the K of E experts that a router chooses (Shazeer et al. 2017, arXiv
// 1701.06538; Jiang et al. 2024, arXiv 2401.04088). Dropless: an expert takes all the tokens that chose it, whatever
// their number.
//
// The rows of an expert lie together, in the order of their tokens; so a token's results do not depend on its company,
// and the rows of a unit of work are a range of every expert's. Letters: T tokens, H hidden, K chosen, N = T K rows.
#pragma once

#include <vector>

#include "nn/mlp.h"

namespace ingot::nn {

struct Experts {
  Linear router;  // [E, H]
  std::vector<Mlp> mlps;

  explicit operator bool() const { return !mlps.empty(); }

  // Fills state.router .. state.expert_out from state.mlp_normed; out [T, H] = the chosen experts' results times their
  // weights, added to out with `accumulate`, absent when only the state is to be filled.
  void forward(Pass& pass, const Tensor& out, BlockState& state, bool accumulate) const;
  // Fills state.grouped and activated alone, from state.mlp_normed, gate and up.
  void refill(Pass& pass, BlockState& state) const;

  // dout [T, H]: the gradient of what forward added to out, unchanged. dnormed [T, H] is assigned the gradient of
  // state.mlp_normed. Overwrites state.gate, up and expert_out.
  void backward(Pass& pass, const Tensor& dnormed, const Tensor& dout, BlockState& state) const;

  // Scratch of forward, and of backward, as Block's.
  static size_t forward_bytes(const spec::ModelSpec& model, const PassShape& shape);
  static size_t backward_bytes(const spec::ModelSpec& model, const PassShape& shape);
};

}  // namespace ingot::nn
