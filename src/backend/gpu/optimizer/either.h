// Tensors of kernels that are f32 or bf16 according to a flag, as masters and optimizer states are.
#pragma once

#include "backend/gpu/elementwise/elements.h"

namespace ingot::gpu {

struct Either {
  void* data;
  bool is_bf16;
};

}  // namespace ingot::gpu

#if GPU_KERNEL_PASS
namespace ingot::gpu::GPU_TARGET {

template <int V>
GPU_FN Floats<V> load_either(const void* data, bool is_bf16, int64_t at) {
  return is_bf16 ? load_floats<V>(static_cast<const Bf16*>(data) + at)
                 : load_floats<V>(static_cast<const float*>(data) + at);
}
template <int V>
GPU_FN void store_either(void* data, bool is_bf16, int64_t at, const Floats<V>& values) {
  if (is_bf16) {
    store_floats(static_cast<Bf16*>(data) + at, values);
  } else {
    store_floats(static_cast<float*>(data) + at, values);
  }
}

template <int V>
GPU_FN Floats<V> load_either(const Either& tensor, int64_t at) {
  return load_either<V>(tensor.data, tensor.is_bf16, at);
}
template <int V>
GPU_FN void store_either(const Either& tensor, int64_t at, const Floats<V>& values) {
  store_either(tensor.data, tensor.is_bf16, at, values);
}

}  // namespace ingot::gpu::GPU_TARGET

#else

namespace ingot::gpu {

inline Either either(const Tensor& tensor) { return {tensor.data, tensor.dtype == DType::bf16}; }

}  // namespace ingot::gpu
#endif
