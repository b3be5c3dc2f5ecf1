// What the optimizers' updates share on CPUs.
#pragma once

#include <algorithm>
#include <array>

#include "backend/cpu/glue.h"
#include "backend/cpu/simd/blockwise.h"
#include "backend/cpu/simd/either_memory.h"
#include "ops/blockwise.h"
#include "tensor/dynamic_map.h"

namespace ingot::cpu {

// Whether a decision (ops/adamw.h) is there and says that updates are halted.
inline bool is_halted(const Tensor& decision) { return decision && decision.as<double>()[2] != 0; }

// Applies the scale of a decision, if there is one; false if updates are halted.
inline bool apply_decision(const Tensor& decision, float& gradient_scale) {
  if (decision) gradient_scale = static_cast<float>(decision.as<double>()[1]);
  return !is_halted(decision);
}

// The elements of an f32 or bf16 tensor from element i on.
inline EitherMemory memory_at(const Tensor& tensor, int64_t i) {
  return {static_cast<std::byte*>(tensor.data) + static_cast<size_t>(i) * size_of(tensor.dtype),
          tensor.dtype == DType::bf16};
}
// Of a bf16 tensor that may be absent.
inline Bf16* weight_at(const Tensor& weight, int64_t i) { return weight ? bf16(weight) + i : nullptr; }

// The bounds of a map's codes.
BlockwiseTables blockwise_tables(bool is_signed);

// The kernels of 8-bit states in the reference implementations: codes by bisection.
extern const BlockwiseKernels reference_blockwise;

// Calls body(block, first element, number of elements) for each block of n elements.
template <class Body>
void for_blocks(ops::Context& context, int64_t n, Body body) {
  constexpr int64_t grain = element_grain / ops::blockwise_elements;
  context.threads->parallel_for(0, ops::blockwise_blocks(n), grain, [&](int64_t lo, int64_t hi) {
    for (int64_t block = lo; block < hi; ++block) {
      const int64_t first = block * ops::blockwise_elements;
      body(block, first, std::min(ops::blockwise_elements, n - first));
    }
  });
}

// An 8-bit state.
struct CodedState {
  Tensor codes, scales;
  bool is_signed;
};

// Decodes a block of every state, calls update(first element, number of elements, decoded), which changes the decoded
// values of each state, and encodes them again.
template <size_t states, class Update>
void update_blocks(ops::Context& context, const std::array<CodedState, states>& coded, const BlockwiseKernels& kernels,
                   Update update) {
  std::array<BlockwiseTables, states> tables;
  for (size_t s = 0; s < states; ++s) tables[s] = blockwise_tables(coded[s].is_signed);
  for_blocks(context, coded[0].codes.elements(), [&](int64_t block, int64_t first, int64_t count) {
    alignas(64) std::array<std::array<float, ops::blockwise_elements>, states> decoded;
    for (size_t s = 0; s < states; ++s) {
      kernels.dequantize(decoded[s].data(), coded[s].codes.template as<uint8_t>() + first, count,
                         dynamic_map(coded[s].is_signed).data(), coded[s].scales.template as<float>()[block]);
    }
    update(first, count, decoded);
    for (size_t s = 0; s < states; ++s) {
      coded[s].scales.template as<float>()[block] =
          kernels.quantize(coded[s].codes.template as<uint8_t>() + first, decoded[s].data(), count, tables[s]);
    }
  });
}

}  // namespace ingot::cpu
