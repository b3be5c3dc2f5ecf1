// Block-wise 8-bit quantisation of optimizer states (Dettmers et al. 2022, arXiv 2110.02861): each block of 256
// consecutive elements is divided by its largest magnitude, its scale, and every element becomes the code of the
// nearest value of a map (tensor/dynamic_map.h), the smaller one of two. Updates (ops/adamw.h, momentum.h, muon.h)
// decode and encode. The last block may be shorter.
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

}  // namespace ingot::ops
