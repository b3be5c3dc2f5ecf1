// Low-rank terms (Hu et al. 2021, arXiv 2106.09685) of many adapters in one batch, each token with its own: what
// serving uses. Letters: T tokens, I in, O out, S adapters, L layers.
#pragma once

#include <cstdint>

#include "ops/context.h"

namespace ingot::ops {

// An adapter's part in one layer: A [rank, I] and B [O, rank] of x's type, on the op's device. Rank 0: the layer is not
// adapted, and the addresses mean nothing.
struct LoraEntry {
  const void* a = nullptr;
  const void* b = nullptr;
  int32_t rank = 0;
  float factor = 0;
};
static_assert(sizeof(LoraEntry) == 24 && sizeof(void*) == 8);

struct LoraAttributes {
  int64_t layer = 0;  // which of the L
  int64_t rank = 0;   // the largest in `entries` of this layer, or more
};

// y [T, O] += factor B (A x) with entry (slots[t], layer) for row t; x [T, I], f32, bf16 or f16; y is like x or f32.
// entries [S, L, 3] i64 are LoraEntry; slots [T] i32, -1 for none. Sums in fp32 in an order of I and rank alone, A x is
// not rounded, and the sum is rounded once into y: a row's bits depend on the row and its adapter, and ranks differ at
// will: each costs its own. What is launched does not depend on who has which adapter.
void lora(Context& context, const Tensor& y, const Tensor& x, const Tensor& entries, const Tensor& slots,
          LoraAttributes attributes);

struct Lora {
  static constexpr const char* name = "lora";
  using Signature = void(Context&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, LoraAttributes);
};

}  // namespace ingot::ops
