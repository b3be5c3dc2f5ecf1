// Argument checks that the ops share: a failed one is a mistake in Ingot and names the op and every tensor of the call.
#pragma once

#include <initializer_list>

#include "tensor/tensor.h"

namespace ingot::ops {

struct NamedTensor {
  const char* name;
  const Tensor& tensor;
};

using NamedTensors = std::initializer_list<NamedTensor>;

// ErrorKind::internal, with `rule` and the tensors' types and shapes, unless `holds`.
void require(bool holds, const char* op, const char* rule, NamedTensors tensors);

inline bool is(const Tensor& tensor, DType dtype, const Shape& shape) {
  return tensor.dtype == dtype && tensor.shape == shape;
}
inline bool is_activation(DType dtype) { return dtype == DType::f32 || dtype == DType::bf16; }

}  // namespace ingot::ops
