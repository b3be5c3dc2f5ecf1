// Copies groups of columns of a matrix: q, k and v out of a fused projection, and their gradients back into it.
// Letters: T tokens, N columns.
#pragma once

#include <cstdint>

#include "ops/context.h"
#include "tensor/tensor.h"

namespace ingot::ops {

// Group g of `groups` is columns g stride + offset .. + width of the wide matrix; groups do not overlap (width <=
// stride if there are several).
struct ColumnsAttributes {
  int64_t groups = 1;
  int64_t width = 0;
  int64_t stride = 0;  // unused with one group
  int64_t offset = 0;
};

// y [T, groups width] = the groups of x [T, N]: y[t, g width + j] = x[t, g stride + offset + j]. Both f32, both bf16 or
// both f16; y shares no memory with x.
void gather_columns(Context& context, const Tensor& y, const Tensor& x, ColumnsAttributes attributes);

struct GatherColumns {
  static constexpr const char* name = "gather_columns";
  using Signature = void(Context&, const Tensor&, const Tensor&, ColumnsAttributes);
};

// The inverse: assigns the groups of x [T, N] from y [T, groups width] and leaves the other columns of x unchanged.
// gather_columns and scatter_columns are each other's backward.
void scatter_columns(Context& context, const Tensor& x, const Tensor& y, ColumnsAttributes attributes);

struct ScatterColumns {
  static constexpr const char* name = "scatter_columns";
  using Signature = void(Context&, const Tensor&, const Tensor&, ColumnsAttributes);
};

}  // namespace ingot::ops
