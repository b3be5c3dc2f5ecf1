// The two chunks of rows that a context-parallel rank has where ranks do not exchange heads (spec/context_rows.h).
#pragma once

#include <array>

#include "spec/context_rows.h"
#include "tensor/tensor.h"

namespace ingot::nn {

// The first rows of rank `rank`'s chunks of `rows` each, among those of all `ranks`.
inline std::array<int64_t, 2> first_rows(int64_t rank, int64_t ranks, int64_t rows) {
  const std::vector<spec::Range> chunks =
      spec::context_rows(spec::CpCommType::allgather, rank, ranks, 2 * ranks * rows);
  return {chunks.front().begin, chunks.back().begin};
}

// Chunk `i` of x [T, N].
inline Tensor chunk_of(const Tensor& x, int64_t i) {
  const int64_t rows = x.shape[0] / 2;
  return x.slice(i * rows, (i + 1) * rows);
}

// Matrix `i` of a rank's lse, which has one [Q, T / 2] for each chunk in the memory of [Q, T]. Absent if lse is.
inline Tensor chunk_of_lse(const Tensor& lse, int64_t i) {
  if (!lse) return lse;
  const int64_t elements = lse.elements() / 2;
  return lse.reshape(Shape{2 * elements})
      .slice(i * elements, (i + 1) * elements)
      .reshape(Shape{lse.shape[0], lse.shape[1] / 2});
}

}  // namespace ingot::nn
