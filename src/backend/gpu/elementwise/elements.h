// Elementwise kernels: a thread processes V adjacent elements, a block 256 * V.
#pragma once

#include "backend/gpu/number.h"

#if GPU_KERNEL_PASS
namespace ingot::gpu::GPU_TARGET {

// Index of the first element of this thread.
template <int V>
GPU_FN int64_t first_element() {
  return (static_cast<int64_t>(block_index()) * 256 + thread_index()) * V;
}

template <int V, class Function, class... Values>
GPU_FN Floats<V> each_of(Function function, const Values&... values) {
  Floats<V> result;
  for (int i = 0; i < V; ++i) result.at[i] = function(values.at[i]...);
  return result;
}

// y[i] = function(x[i]...) in fp32, rounded once, for all i < n.
template <int V, class Y, class Function, class... X>
GPU_FN void map_elements(int64_t n, Y* y, Function function, const X*... x) {
  const int64_t at = first_element<V>();
  if (at < n) store_floats(y + at, each_of<V>(function, load_floats<V>(x + at)...));
}

}  // namespace ingot::gpu::GPU_TARGET

#else

#include "backend/gpu/launch.h"

namespace ingot::gpu {

// Launches an elementwise kernel over `tensors`, all of one shape. The dtype of the first selects the kernel.
template <class Args>
void launch_elements(ops::Context& context, const KernelPacks<Args>& kernels, std::initializer_list<Tensor> tensors,
                     const Args& args) {
  const Tensor& first = *tensors.begin();
  const int64_t n = first.elements();
  const int64_t per_thread = is_vectorizable(n, tensors) ? static_cast<int64_t>(16 / size_of(first.dtype)) : 1;
  launch(context, of_rows(kernels, n, tensors), {blocks_of(n, 256 * per_thread)}, args);
}

}  // namespace ingot::gpu
#endif
