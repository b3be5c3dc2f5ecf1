// The arithmetic and the memory traffic of an op's call, for profiles of a step.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "tensor/tensor.h"
#include "tensor/weight.h"

namespace ingot::ops {

// FLOPs are counted for gemms and attention only. An op whose work is not that of plain_work declares in its struct
//   static OpWork work(std::span<const Tensor> tensors);
// as a function of the dtypes and shapes of the tensors that OpObserver::ran gets: at least two. Where the attributes
// of the call or encoded matrices matter too, `work` has all parameters of the op's Signature after the context
// instead.
struct OpWork {
  std::array<int64_t, 3> gemm{};  // m, n, k of a gemm: 2 m n k FLOPs; zeros for other ops
  double share = 1;               // of these FLOPs: several calls divide the gemm among them
  double attention_tokens = 0;    // counts a token of attention's forward pass as 1: its FLOPs depend on the sequences
  double bytes = 0;               // each operand counted once; encoded weights are added for gemms (OpObserver)
  bool wide = false;              // computes in f32

  bool is_gemm() const { return gemm[0] != 0; }
  double gemm_flops() const {
    return 2.0 * share * static_cast<double>(gemm[0]) * static_cast<double>(gemm[1]) * static_cast<double>(gemm[2]);
  }
};

// The operand is the second tensor, after the result.
OpWork plain_work(std::span<const Tensor> tensors);
// `with_term`: the last two tensors are low [m, rank] and the matrix it is multiplied with, a second gemm that is
// added.
OpWork gemm_work(std::span<const Tensor> tensors, bool with_term = false);
// Of an op that encodes or decodes a matrix: all of `plain` and of `encoded`.
OpWork recoding_work(const Tensor& plain, const Weight& encoded);
// `passes`: the op's FLOPs as a multiple of the forward pass's.
OpWork attention_work(std::span<const Tensor> tensors, double passes);

// `args`: of the call, after the context.
template <class Op, class... Args>
OpWork work_of(std::span<const Tensor> tensors, const Args&... args) {
  if constexpr (requires { Op::work(args...); }) {
    return Op::work(args...);
  } else {
    if (tensors.size() < 2) return {};
    if constexpr (requires { Op::work(tensors); }) {
      return Op::work(tensors);
    } else {
      return plain_work(tensors);
    }
  }
}

}  // namespace ingot::ops
