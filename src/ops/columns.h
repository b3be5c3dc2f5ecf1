// Groups of columns of a matrix: q, k and v out of a fused projection and their gradients back into it. Moves bytes.
// Letters: T tokens, N columns.
#pragma once

#include <cstdint>

#include "ops/context.h"
#include "tensor/tensor.h"

namespace ingot::ops {

// Group g of `groups` is columns g stride + offset .. + width of the wide matrix; groups do not overlap (width <=
// stride where there are several).
struct ColumnsAttributes {
  int64_t groups = 1;
  int64_t width = 0;
  int64_t stride = 0;  // meaningless for one group
  int64_t offset = 0;
};

// y [T, groups width] = the groups of x [T, N]: y[t, g width + j] = x[t, g stride + offset + j]. f32, bf16 or f16,
// alike; y shares no memory with x.
void gather_columns(Context& context, const Tensor& y, const Tensor& x, ColumnsAttributes attributes);

struct GatherColumns {
  static constexpr const char* name = "gather_columns";
  using Signature = void(Context&, const Tensor&, const Tensor&, ColumnsAttributes);
};

// The reverse: assigns the groups of x [T, N] from y [T, groups width] and leaves its other columns as they are. Its
// backward is gather_columns, and the other way round.
void scatter_columns(Context& context, const Tensor& x, const Tensor& y, ColumnsAttributes attributes);

struct ScatterColumns {
  static constexpr const char* name = "scatter_columns";
  using Signature = void(Context&, const Tensor&, const Tensor&, ColumnsAttributes);
};

}  // namespace ingot::ops
