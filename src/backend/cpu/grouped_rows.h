// Checks of the indices with which ops on rows that are grouped by expert (ops/moe.h) address memory. A wrong index is
// a bug in the caller: ErrorKind::internal.
#pragma once

#include <cstdint>

#include "base/error.h"
#include "tensor/tensor.h"

namespace ingot::cpu {

// Element i of `indices` (i32), which must be in [0, count).
inline int64_t index_of(const char* op, const char* what, const Tensor& indices, int64_t i, int64_t count) {
  const int64_t index = indices.as<int32_t>()[i];
  if (index < 0 || index >= count) {
    throw_error(ErrorKind::internal, "{}: {}[{}] is {}, outside [0, {})", op, what, i, index, count);
  }
  return index;
}

inline void check_indices(const char* op, const char* what, const Tensor& indices, int64_t count) {
  for (int64_t i = 0; i < indices.elements(); ++i) index_of(op, what, indices, i, count);
}

// The offsets [E + 1] (i32) of the experts' rows, which must ascend from 0 to `rows`.
inline const int32_t* checked_offsets(const char* op, const Tensor& offsets, int64_t rows) {
  const int32_t* all = offsets.as<int32_t>();
  const int64_t experts = offsets.shape[0] - 1;
  if (all[0] != 0 || all[experts] != rows) {
    throw_error(ErrorKind::internal, "{}: offsets from {} to {} of {} rows", op, all[0], all[experts], rows);
  }
  for (int64_t e = 0; e < experts; ++e) {
    if (all[e + 1] < all[e]) {
      throw_error(ErrorKind::internal, "{}: offsets[{}] is {}, below the {} before it", op, e + 1, all[e + 1], all[e]);
    }
  }
  return all;
}

}  // namespace ingot::cpu
