// Low-rank terms (Hu et al. 2021, arXiv 2106.09685) of many adapters in one batch, with an adapter per token, for
// serving. Letters: T tokens, I in, O out, S adapters, L layers.
#pragma once

#include <cstdint>

#include "ops/context.h"

namespace ingot::ops {

// An adapter's weights for one layer: A [rank, I] and B [O, rank] of x's dtype, on the op's device. Rank 0: the layer
// is not adapted, and the addresses are ignored.
struct LoraEntry {
  const void* a = nullptr;
  const void* b = nullptr;
  int32_t rank = 0;
  float factor = 0;
};
static_assert(sizeof(LoraEntry) == 24 && sizeof(void*) == 8);

struct LoraAttributes {
  int64_t layer = 0;  // index of the layer among the L
  int64_t rank = 0;   // an upper bound of the ranks of this layer in `entries`
};

// y [T, O] += factor B (A x) with entry (slots[t], layer) for row t; x [T, I], f32, bf16 or f16; y has x's dtype or
// f32. entries [S, L, 3] i64 are LoraEntry; slots [T] i32, -1 for no adapter. Sums are in fp32, in an order that
// depends on I and the rank alone; A x is not rounded, and the result is rounded once into y. So a row's bits depend on
// the row and its adapter only. Ranks may differ between adapters; the cost of an adapter depends on its own rank. The
// kernel launches do not depend on which row uses which adapter.
void lora(Context& context, const Tensor& y, const Tensor& x, const Tensor& entries, const Tensor& slots,
          LoraAttributes attributes);

struct Lora {
  static constexpr const char* name = "lora";
  using Signature = void(Context&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, LoraAttributes);
};

struct GroupedLoraAttributes {
  int64_t layer = 0;       // index of the first expert's layer among the L
  int64_t layer_step = 1;  // from one expert's layer to the next
  int64_t rank = 0;        // an upper bound of the ranks of these layers in `entries`
};

// The same for the linear layers of E experts, on N rows that are grouped by expert (ops/moe.h): row n of y [N, O] and
// x [N, I] is of token token_of_row[n] (i32 [N], in [0, T), else ErrorKind::internal), uses the adapter
// slots[token_of_row[n]] (slots [T]), and layer + e layer_step if it lies in offsets[e] .. offsets[e + 1] (i32 [E +
// 1]). A row's bits are those of `lora`.
void grouped_lora(Context& context, const Tensor& y, const Tensor& x, const Tensor& entries, const Tensor& slots,
                  const Tensor& token_of_row, const Tensor& offsets, GroupedLoraAttributes attributes);

struct GroupedLora {
  static constexpr const char* name = "grouped_lora";
  using Signature = void(Context&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                         const Tensor&, GroupedLoraAttributes);
};

}  // namespace ingot::ops
