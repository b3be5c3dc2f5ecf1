// Random weights and operands for benchmarks, where the particular values do not matter.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "tensor/weight.h"

namespace ingot::runtime {

// Normal random values, drawn once and repeated: drawing 16 GB value by value would take minutes. Their number is
// prime, so that the rows of a matrix differ.
class RandomPool {
 public:
  // `elements`: max elements of any tensor to fill.
  RandomPool(uint64_t seed, int64_t elements);

  // Fills an f32, bf16 or f16 tensor of `device` with values times `scale`; each tensor starts at another offset of the
  // pool. The same sequence of calls gives the same numbers on every device.
  void fill(Device& device, const Tensor& tensor, double scale);
  // The same for a matrix of any storage type whose memory is `data`. Errors: those of checkpoint::encode_row.
  void fill(Device& device, const Weight& matrix, void* data, double scale);

 private:
  const std::vector<std::byte>& encoded(DType dtype, double scale);

  std::vector<float> draws_;
  std::map<std::pair<DType, double>, std::vector<std::byte>> encoded_;
  size_t begin_ = 0;
};

}  // namespace ingot::runtime
