// Random weights and operands for benchmarks, where it matters that numbers are random and not which they are.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "tensor/weight.h"

namespace ingot::app {

// Normal draws, made once and laid down again and again: filling 16 GB draw by draw would take minutes. Their number is
// prime, so that the rows of a matrix differ.
class RandomPool {
 public:
  // At most `elements` are wanted of any tensor.
  RandomPool(uint64_t seed, int64_t elements);

  // Writes an f32, bf16 or f16 tensor of `device`, times `scale`; each tensor begins at another place of the pool. The
  // same calls give the same numbers on every device.
  void fill(Device& device, const Tensor& tensor, double scale);
  // The same for a matrix of any storage whose memory is `data`. Errors: those of checkpoint::encode_row.
  void fill(Device& device, const Weight& matrix, void* data, double scale);

 private:
  const std::vector<std::byte>& encoded(DType dtype, double scale);

  std::vector<float> draws_;
  std::map<std::pair<DType, double>, std::vector<std::byte>> encoded_;
  size_t begin_ = 0;
};

}  // namespace ingot::app
