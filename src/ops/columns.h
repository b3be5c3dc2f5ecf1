// Copies groups of columns of a matrix: q, k and v out of a fused projection, and their gradients back into it.
// Letters: T tokens, N columns, P parts.
#pragma once

#include <cstdint>
#include <span>

#include "ops/context.h"
#include "ops/work.h"
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

inline constexpr size_t max_column_parts = 3;

// Of each of up to max_column_parts parts p, y[p] [T, groups width] = the groups of x [T, N]: y[t, g width + j] = x[t,
// g stride + offset + j]. All f32, all bf16 or all f16; no y shares memory with x or another y.
void gather_columns(Context& context, std::span<const Tensor> y, const Tensor& x,
                    std::span<const ColumnsAttributes> parts);
inline void gather_columns(Context& context, const Tensor& y, const Tensor& x, ColumnsAttributes part) {
  gather_columns(context, std::span(&y, 1), x, std::span(&part, 1));
}

struct GatherColumns {
  static constexpr const char* name = "gather_columns";
  using Signature = void(Context&, std::span<const Tensor>, const Tensor&, std::span<const ColumnsAttributes>);
  static OpWork work(std::span<const Tensor> y, const Tensor& x, std::span<const ColumnsAttributes> parts);
};

// The inverse: assigns the groups of x [T, N] from y[p] [T, groups width] and leaves the other columns of x unchanged.
// No two parts have the same columns. gather_columns and scatter_columns are each other's backward.
void scatter_columns(Context& context, const Tensor& x, std::span<const Tensor> y,
                     std::span<const ColumnsAttributes> parts);
inline void scatter_columns(Context& context, const Tensor& x, const Tensor& y, ColumnsAttributes part) {
  scatter_columns(context, x, std::span(&y, 1), std::span(&part, 1));
}

struct ScatterColumns {
  static constexpr const char* name = "scatter_columns";
  using Signature = void(Context&, const Tensor&, std::span<const Tensor>, std::span<const ColumnsAttributes>);
  static OpWork work(const Tensor& x, std::span<const Tensor> y, std::span<const ColumnsAttributes> parts);
};

}  // namespace ingot::ops
