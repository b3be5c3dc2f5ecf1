// One linear layer of all experts of a mixture, on rows that are grouped by expert, without the host: which rows are an
// expert's is read on the device. Letters: T tokens, E experts, N grouped rows, I in, O out, R rank.
#pragma once

#include <span>

#include "nn/mlp.h"

namespace ingot::nn {

// The rows of a batch, grouped by expert.
struct ExpertGroups {
  Tensor offsets;       // [E + 1] i32: rows [e] .. [e + 1] are of expert e
  Tensor token_of_row;  // [N] i32: the token of each row, ascending within an expert
  int64_t tokens{};     // T: no expert has more rows
};

struct GroupedLayer {
  const std::vector<Mlp>& mlps;     // of the experts
  Linear Mlp::* layer;              // which of their layers
  std::span<const Weight> weights;  // of these

  const Linear& of(size_t expert) const { return mlps[expert].*layer; }

  // Whether forward and backward support the pass. Not supported are fp8 gemms, biases, several adapters outside
  // serving, and adapters that differ between the experts in more than their values.
  bool supports(const Pass& pass) const;

  // As Linear::forward_part, of each expert's rows.
  void forward(Pass& pass, const ExpertGroups& groups, const Tensor& y, const Tensor& x) const;

  // As Linear::backward. dx may be x: the other gradients are computed first. Every accumulation unit contributes to
  // the gradients of every expert, zeros where the expert has none of its rows.
  void backward(Pass& pass, const ExpertGroups& groups, const Tensor& dx, const Tensor& dy, const Tensor& x,
                bool accumulate) const;

  // Scratch bytes for `rows` grouped rows, the maximum of forward and backward.
  static size_t bytes(int64_t rows, int64_t out, int64_t in, const PassShape& shape);

 private:
  struct LowRank;
  void add_lora(Pass& pass, const ExpertGroups& groups, const Tensor& y, const Tensor& x) const;
  void gradients(Pass& pass, const ExpertGroups& groups, std::span<const int> trainable, const Tensor& dy,
                 const Tensor& x) const;
};

}  // namespace ingot::nn
