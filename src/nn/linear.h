// A linear layer y = x W^T + b with low-rank adapters. Letters: T tokens, I in, O out, R rank.
#pragma once

#include <span>
#include <vector>

#include "nn/pass.h"
#include "nn/row_exchange.h"
#include "ops/linear_group.h"
#include "spec/slice.h"
#include "tensor/weight.h"

namespace ingot::nn {

struct Linear {
  Weight weight;         // [O, I]
  Tensor bias;           // [O] f32, absent when the layer has none
  size_t parameter = 0;  // index of the weight in spec::parameters, and of the layer in an Adapter
  size_t bias_parameter = 0;
  int weight_trainable = -1;  // index among the trainable parameters, -1 when frozen
  int bias_trainable = -1;

  bool fp8 = false;  // fp8 gemms in a pass with fp8 (ops/linear_fp8.h)
  // The input features are split over the tensor-parallel ranks (Split::columns, Megatron's RowParallelLinear), and
  // forward all-reduces the partial outputs. The input gradients of the other split layers are partial; the caller
  // all-reduces their sum once for all layers with the same input. Adapters are cut with the weight
  // (spec::held_adapter).
  bool row_parallel = false;
  int64_t first_input = 0;  // the number of the first input feature here, among all of the layer's
  // The output features are split (Split::rows, Megatron's ColumnParallelLinear): each of these consecutive groups of
  // them; empty: all of them together.
  bool column_parallel = false;
  std::vector<int64_t> output_groups;
  // Of a head, else 0: the tokens of the whole vocabulary, and the first one here (spec::vocabulary_of).
  int64_t vocabulary = 0;
  int64_t first_output = 0;

  explicit operator bool() const { return static_cast<bool>(weight); }

  // y [T, O] = x [T, I] W^T + b, plus the adapter of each segment, plus `residual` [T, O] unless it is absent, which is
  // y itself or does not overlap with it. Of a row-parallel layer y and the residual may be this rank's rows alone
  // (nn/row_exchange.h).
  void forward(Pass& pass, const Tensor& y, const Tensor& x, const Tensor& residual = {}) const;

  // The same without a sum over ranks: where inputs are split, this rank's part of the result, of which one rank's has
  // the bias, and which the caller sums.
  void forward_part(Pass& pass, const Tensor& y, const Tensor& x, const Tensor& residual = {}) const;

  // Whether forward and backward are gemms alone, without a bias and without adapters.
  bool is_gemm(const Pass& pass) const;

  // Whether forward_each of these layers is one group of gemms (ops/linear_group.h), in serving; and whether it is that
  // alone, without biases and adapters.
  static bool are_grouped(const Pass& pass, std::span<const Linear* const> layers, int64_t rows);
  static bool are_gemms(const Pass& pass, std::span<const Linear* const> layers, int64_t rows);
  // The attributes of such a group.
  static ops::LinearGroupAttributes group_attributes(const Pass& pass, const Linear& first);

  // The same as forward of each of at most three layers, to y[i].
  static void forward_each(Pass& pass, std::span<const Linear* const> layers, std::span<const Tensor> y,
                           const Tensor& x);

  // dx [T, I] = the gradient of x (added to dx with `accumulate`; not computed when absent). The gradients of weight,
  // bias and adapters go to the accumulator, one accumulation unit at a time, or are deferred (Training::deferred). x
  // is the input of forward.
  void backward(Pass& pass, const Tensor& dx, const Tensor& dy, const Tensor& x, bool accumulate) const;

  // The output features here of slice number `slice` of this rank (TensorParallel::own_slices), ascending.
  std::vector<spec::Range> outputs_of(const Pass& pass, int64_t slice) const;

  // In a pass that sums in slices: dx [T, I] is assigned the gradient of the input x of at most three column-parallel
  // layers, summed over their outputs and the ranks; not computed when absent, and this rank's rows alone where dx has
  // no more. Otherwise as backward.
  static void backward_sliced(Pass& pass, const Tensor& dx, std::span<const Linear* const> layers,
                              std::span<const Tensor> dy, const Tensor& x);

  // The part of backward that adds to the accumulator.
  void add_gradients(Pass& pass, const Tensor& dy, const Tensor& x) const;

  // What the sum over ranks takes until it is added to the output.
  static size_t sum_bytes(int64_t rows, int64_t out, const PassShape& shape) {
    if (shape.tp == 1 || shape.slices > 1) return 0;
    return shape.matrix_bytes(shape.own_rows(rows), out) + 2 * all_rows_bytes(rows, out, shape);
  }
  // What sums in slices take besides bytes(), 0 without them: of a row-parallel layer, and of backward_sliced for
  // layers with `out` output features together.
  static size_t sliced_bytes(int64_t rows, int64_t out, int64_t in, const PassShape& shape);
  static size_t backward_sliced_bytes(int64_t rows, int64_t out, int64_t in, const PassShape& shape);
  // Scratch bytes for `rows` in a pass of this shape, the maximum of forward and backward. `may_fp8`: the layer's
  // `fp8`. A row-parallel layer takes sum_bytes() and sliced_bytes() too.
  static size_t bytes(int64_t rows, int64_t out, int64_t in, const PassShape& shape, bool may_fp8 = true);

 private:
  bool in_fp8(const Pass& pass) const { return fp8 && pass.fp8; }
  bool in_int8(const Pass& pass) const;
  void forward_sliced(Pass& pass, const Tensor& y, const Tensor& x, const Tensor& residual) const;
  // The weight that is multiplied with gradients of dtype `type`: in a row-parallel layer that is summed in slices
  // decoded as a whole, in scratch memory, so that the order of sums does not depend on the number of inputs here.
  Weight backward_weight(Pass& pass, DType type) const;
  // Whether the weight, the bias or an adapter of the pass is trained.
  bool has_gradients(const Pass& pass) const;
  void add_own_gradients(Pass& pass, const Tensor& dy, const Tensor& x) const;  // of weight and bias
  // Adds the bias, unless another rank adds it, and the terms of adapters; not those of `whole`, the segment whose term
  // y has already.
  void add_terms(Pass& pass, const Tensor& y, const Tensor& x, const AdapterSegment* whole) const;
  void add_low_rank_terms(Pass& pass, const Tensor& y, const Tensor& x, const AdapterSegment* whole) const;
  // Whether forward sums the ranks' parts; in slices, or each rank's part as a whole.
  bool sums_slices(const Pass& pass) const { return row_parallel && pass.tp.sliced(); }
  bool sums_over_ranks(const Pass& pass) const {
    return row_parallel && (pass.tp.group.size() > 1 || pass.tp.rows != nullptr) && !pass.tp.sliced();
  }
};

}  // namespace ingot::nn
