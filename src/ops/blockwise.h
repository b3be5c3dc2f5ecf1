// Block-wise 8-bit quantisation of optimizer states (Dettmers et al. 2022, arXiv 2110.02861): each block of 256
// consecutive elements is divided by its largest magnitude, its scale, and every element becomes the code of the
// nearest value of a map (tensor/dynamic_map.h). N elements, B = ceil(N / 256) blocks, of which the last may be
// shorter.
#pragma once

#include "ops/context.h"
#include "tensor/tensor.h"

namespace ingot::ops {

inline constexpr int64_t blockwise_elements = 256;  // per block

// Number of blocks of n elements.
inline int64_t blockwise_blocks(int64_t n) { return (n + blockwise_elements - 1) / blockwise_elements; }

// Checks a state of `shape` that an update reads and writes: f32 or bf16 without `scales`, or u8 codes with `scales`
// [ceil(n / 256)] f32 of their blocks, the first of which begins at the first element. Errors: internal, naming the op.
void check_state(const char* op, const char* what, const Context& context, const Tensor& state, const Tensor& scales,
                 const Shape& shape);

struct BlockwiseAttributes {
  bool is_signed = true;  // false: x is never negative, and all codes are for its one sign
  // [3] f64, the result of decide_update (ops/adamw.h); may be absent. When decision[2] is not 0 nothing is written.
  Tensor decision{};
};

// codes [N] u8, scales [B] f32 = x [N] f32. Ties go to the smaller value. x must be finite.
void quantize_blockwise(Context& context, const Tensor& codes, const Tensor& scales, const Tensor& x,
                        BlockwiseAttributes attributes);

struct QuantizeBlockwise {
  static constexpr const char* name = "quantize_blockwise";
  using Signature = void(Context&, const Tensor&, const Tensor&, const Tensor&, BlockwiseAttributes);
};

// x [N] f32 = the map's value of codes [N] u8, times the block's scale of scales [B] f32.
void dequantize_blockwise(Context& context, const Tensor& x, const Tensor& codes, const Tensor& scales, bool is_signed);

struct DequantizeBlockwise {
  static constexpr const char* name = "dequantize_blockwise";
  using Signature = void(Context&, const Tensor&, const Tensor&, const Tensor&, bool);
};

}  // namespace ingot::ops
