// Rotary position embedding with half-split pairs (Su et al. 2021, arXiv 2104.09864; the layout of Hugging Face's
// llama).
#pragma once

#include <cstdint>

#include "ops/context.h"
#include "tensor/tensor.h"

namespace ingot::ops {

struct RopeAttributes {
  int64_t heads = 0;     // number of heads in a row of x
  bool inverse = false;  // rotate by minus the angle: the backward of rope
};

// Rotates the first R of every head's D elements, R even, R <= D, and copies the others. For every token t, head and i
// < R/2, with angle a = positions[t] * frequencies[i] in fp32:
//   y[i] = x[i] cos a - x[i + R/2] sin a,  y[i + R/2] = x[i + R/2] cos a + x[i] sin a.
// x and y [T, heads * D], both f32, both bf16 or both f16, may be the same; positions [T] i32; frequencies [R/2] f32.
void rope(Context& context, const Tensor& y, const Tensor& x, const Tensor& positions, const Tensor& frequencies,
          RopeAttributes attributes);

struct Rope {
  static constexpr const char* name = "rope";
  using Signature = void(Context&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, RopeAttributes);
};

}  // namespace ingot::ops
