// Row kernels: each block of 256 threads processes one row. A thread takes V adjacent elements, then those 256 * V
// further on. Kernel passes only.
#pragma once

#include "backend/gpu/elementwise/elements.h"

#if GPU_KERNEL_PASS
namespace ingot::gpu::GPU_TARGET {

inline constexpr int row_threads = 256;

struct RowStorage {
  float sums[row_threads / 32];
};

// A row that may be absent; its elements are then `fill`. It has `present` because a null pointer would hide from the
// compiler the address space of `row`.
template <class T>
struct OptionalRow {
  const T* row;
  bool present;
  float fill = 0;
};

// V elements of a row, from j on.
template <int V, class T>
GPU_FN Floats<V> row_part(const T* row, int64_t j) {
  return load_floats<V>(row + j);
}
template <int V, class T>
GPU_FN Floats<V> row_part(const OptionalRow<T>& row, int64_t j) {
  if (row.present) return load_floats<V>(row.row + j);
  Floats<V> values;
  for (int i = 0; i < V; ++i) values.at[i] = row.fill;
  return values;
}

// y[j] = function(x[j]...) in fp32, rounded once, for all j < n. y may alias one of the x.
template <int V, class Y, class Function, class... X>
GPU_FN void map_row(int64_t n, Y* y, Function function, const X... x) {
  for (int64_t j = thread_index() * V; j < n; j += row_threads * V) {
    store_floats(y + j, each_of<V>(function, row_part<V>(x, j)...));
  }
}

template <int V, class Result, class Add, class... Values>
GPU_FN Result reduce_part(Result result, Add add, const Values&... values) {
  for (int i = 0; i < V; ++i) result = add(result, values.at[i]...);
  return result;
}
// result = add(result, x[j]...) over this thread's own j < n.
template <int V, class Result, class Add, class... X>
GPU_FN Result reduce_row(int64_t n, Result result, Add add, const X... x) {
  for (int64_t j = thread_index() * V; j < n; j += row_threads * V) {
    result = reduce_part<V>(result, add, row_part<V>(x, j)...);
  }
  return result;
}
// Starts from 0 with sum = add(sum, x[j]...) over the thread's own j, then sums over the block; the same in each
// thread.
template <int V, class Add, class... X>
GPU_FN float sum_of_row(int64_t n, RowStorage& shared, Add add, const X... x) {
  return block_sum<row_threads>(reduce_row<V>(n, 0.0F, add, x...), shared.sums);
}

}  // namespace ingot::gpu::GPU_TARGET
#endif
