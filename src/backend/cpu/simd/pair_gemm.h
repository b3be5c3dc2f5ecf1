// bf16 gemms on one thread whose operands are packed as pairs of two consecutive k. They are multiplied by the
// instruction for such pairs, for which nothing is widened and the left operand is read in place if possible.
#pragma once

#include <stdint.h>

#include "backend/cpu/simd/gemm.h"

namespace ingot::cpu {

struct PairGemmKernels {
  // c [m, n] = a b + term (+ c), as described by `shape`. c is `c_float` if not null, else `c_bf16`. The sum of an
  // element is one chain of pairs over k, and then over the term's k, in fp32, from zero, whatever m and n are; it is
  // rounded, or added to c and rounded, once. One of the two steps of a is 1, and one of b's. `pack`: pair_gemm_pack(k,
  // term's k) words, 64-byte aligned. Null at levels without bf16 dot products.
  void (*run)(const GemmShape& shape, float* c_float, Bf16* c_bf16, const Bf16* a, const Bf16* b,
              const LowRankTerm& term, uint32_t* pack);
};

constexpr int64_t pair_gemm_rows = 96;   // rows of a packed at a time, if a is not read in place
constexpr int64_t pair_gemm_panel = 64;  // columns of b that are multiplied at a time
// Pairs of k packed at a time, if a is packed. Longer sums are kept in fp32 between the parts of k, for at most
// pair_gemm_partial_rows rows of c at a time.
constexpr int64_t pair_gemm_pairs = 256;
constexpr int64_t pair_gemm_partial_rows = 1024;
// Words of b packed at a time, at most (but at least one panel): half of an L2.
constexpr int64_t pair_gemm_l2_words = 1 << 17;

// Columns of b, and of the term's b, that are packed at a time; `pairs` is the number of pairs of both. (static,
// because files of a single level call it, and no other file may link their copy.)
static constexpr int64_t pair_gemm_columns(int64_t pairs) {
  const int64_t fitting = pair_gemm_l2_words / (pairs > 0 ? pairs : 1) / pair_gemm_panel * pair_gemm_panel;
  return fitting > pair_gemm_panel ? fitting : pair_gemm_panel;
}

// Words that a gemm needs, whether a is read in place or packed.
static constexpr int64_t pair_gemm_pack(int64_t k, int64_t term_k) {
  const int64_t pairs = (k + 1) / 2, at_once = pairs < pair_gemm_pairs ? pairs : pair_gemm_pairs;
  const int64_t partial_rows = pairs > at_once ? pair_gemm_partial_rows : 0;
  const int64_t all = pairs + term_k / 2, part = at_once + term_k / 2;
  const int64_t packed = pair_gemm_columns(part) * (part + partial_rows) + pair_gemm_rows * at_once;
  const int64_t in_place = pair_gemm_columns(all) * all;
  return packed > in_place ? packed : in_place;
}

}  // namespace ingot::cpu

INGOT_EVERY_LEVEL(extern const PairGemmKernels pair_gemm_kernels;)
