// A mixture of MLPs: every token is processed by the K of E experts that a router selects (Shazeer et al. 2017, arXiv
// 1701.06538; Jiang et al. 2024, arXiv 2401.04088). Dropless: an expert processes all tokens that selected it.
//
// Tokens are grouped by expert: each expert's rows are contiguous and in the order of their tokens. So a token's result
// does not depend on the rest of the batch, and the rows of an accumulation unit are a contiguous range in every
// expert. Letters: T tokens, H hidden size, K selected experts per token, N = T K grouped rows.
#pragma once

#include <vector>

#include "nn/grouped_layer.h"

namespace ingot::nn {

// Of tensor-parallel ranks each has its part of every expert, and the sum over the ranks is that of the combined
// results, once a pass and direction; in slices (nn/sliced_sum.h) it is that of every expert's results. The router's
// gradient is the same on all, from the summed gradients of its weights.
//
// Of expert-parallel ranks each has some of the experts (Pass::ep), which get the rows of all ranks' tokens; what the
// router computes, and the combination of the results, is of the rank's own tokens.
//
// Where the host sees the device's memory, it reads which rows are an expert's and computes one expert after another.
// Elsewhere all experts are computed by one grouped gemm for each layer of theirs (nn/grouped_layer.h), and nothing is
// copied to the host or from it; but passes that GroupedLayer does not support copy the groups to the host.
struct Experts {
  Linear router;  // [E, H]

  explicit operator bool() const { return !mlps_.empty(); }
  void add(const Mlp& mlp);  // the next of this rank's experts, whose weights stay where they are

  // Whether the experts' layers are grouped gemms in this pass, which sums in slices never are. The host waits for the
  // router otherwise.
  bool is_grouped(const Pass& pass) const;

  // Fills the members of `state` from `router` to `expert_out` (of ranks that do not sum in slices: their parts), from
  // state.mlp_normed. out [T, H] = the sum of the selected experts' results times their router weights, plus `residual`
  // unless it is absent (as in Linear::forward); `out` is absent when only the state is to be filled.
  void forward(Pass& pass, const Tensor& out, BlockState& state, const Tensor& residual) const;
  // For activation recomputation: fills only state.grouped and state.activated, from state.mlp_normed, gate and up. Not
  // with expert parallelism: state.grouped is saved, and backward fills state.activated.
  void recompute_activations(Pass& pass, BlockState& state) const;

  // dout [T, H]: the gradient of what forward added to out; not modified. dnormed [T, H] is assigned the gradient of
  // state.mlp_normed. Overwrites state.gate, up, activated and expert_out.
  void backward(Pass& pass, const Tensor& dnormed, const Tensor& dout, BlockState& state) const;

  // The router and the linear layers of every expert, also absent ones (a gate, for example).
  std::vector<Linear*> linears();

  // Scratch bytes of forward and of backward, as in Block.
  static size_t forward_bytes(const spec::Experts& spec, int64_t hidden, const PassShape& shape);
  static size_t backward_bytes(const spec::Experts& spec, int64_t hidden, const PassShape& shape);

 private:
  GroupedLayer gate() const { return {mlps_, &Mlp::gate, gates_}; }
  GroupedLayer up() const { return {mlps_, &Mlp::up, ups_}; }
  GroupedLayer down() const { return {mlps_, &Mlp::down, downs_}; }
  ExpertGroups groups(Pass& pass, const BlockState& state) const;
  struct HostGroups;
  static HostGroups host_groups(const Pass& pass, const BlockState& state);
  void forward_here(Pass& pass, BlockState& state) const;
  void forward_exchanged(Pass& pass, BlockState& state) const;
  void forward_grouped(Pass& pass, const ExpertGroups& groups, BlockState& state) const;
  void forward_by_expert(Pass& pass, const HostGroups& groups, BlockState& state) const;
  void backward_here(Pass& pass, const Tensor& dgrouped, BlockState& state) const;
  void backward_exchanged(Pass& pass, const Tensor& dgrouped, BlockState& state) const;
  void backward_grouped(Pass& pass, const ExpertGroups& groups, const Tensor& dgrouped, BlockState& state) const;
  void backward_by_expert(Pass& pass, const HostGroups& groups, const Tensor& dgrouped, BlockState& state) const;

  std::vector<Mlp> mlps_;
  std::vector<Weight> gates_, ups_, downs_;  // of `mlps_`; no gates_ where these have none
};

}  // namespace ingot::nn
