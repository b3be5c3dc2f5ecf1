// The result of a gemm whose register tiles hold sums of rows x vectors elements, and sums between two parts of k.
// Included by simd/*.cpp only.
#pragma once

#include "backend/cpu/simd/simd.h"

namespace ingot::cpu::INGOT_SIMD_LEVEL {

// c, whose rows are `row` elements apart: `c_float` if not null, else `c_bf16`.
struct Result {
  float* c_float;
  Bf16* c_bf16;
  int64_t row;
  bool accumulate;

  Result at(int64_t i, int64_t j) const {
    const int64_t offset = i * row + j;
    return {c_float == nullptr ? nullptr : c_float + offset, c_bf16 == nullptr ? nullptr : c_bf16 + offset, row,
            accumulate};
  }
};

// Sums between two parts of k, in fp32, with whole vectors in every row.
struct Partial {
  float* data;
  int64_t row;
  bool begins, ends;  // whether the part is the first, and the last

  Partial at(int64_t i, int64_t j) const { return {data == nullptr ? nullptr : data + i * row + j, row, begins, ends}; }
};

// The sums of a tile before a part of k: zeros, or those of the part before.
template <int rows, int vectors>
INGOT_INLINE void begin_sums(Floats (&sums)[rows][vectors], const Partial& partial) {
  INGOT_UNROLL
  for (int i = 0; i < rows; ++i) {
    INGOT_UNROLL
    for (int v = 0; v < vectors; ++v) {
      sums[i][v] = partial.begins ? Floats{} : load(partial.data + i * partial.row + v * lanes, AllLanes{});
    }
  }
}

// Prefetches the lines of rows x vectors elements, which are stored (and perhaps added to) after many products: the
// store would wait for them. Past the last column it asks for lines that are not needed.
template <int rows, int vectors, class C>
INGOT_INLINE void prefetch_lines(const C* c, int64_t row) {
  constexpr int64_t bytes = vectors * lanes * static_cast<int64_t>(sizeof(C));
  INGOT_UNROLL
  for (int i = 0; i < rows; ++i) {
    const auto* at = reinterpret_cast<const unsigned char*>(c + i * row);
    INGOT_UNROLL
    for (int64_t b = 0; b < bytes; b += 64) __builtin_prefetch(at + b, 1, 2);
  }
}
template <int rows, int vectors>
INGOT_INLINE void prefetch_result(const Result& c) {
  if (c.c_float != nullptr) {
    prefetch_lines<rows, vectors>(c.c_float, c.row);
  } else {
    prefetch_lines<rows, vectors>(c.c_bf16, c.row);
  }
}

template <class C, class Extent>
INGOT_INLINE void add_or_store(C* c, Floats sums, bool accumulate, Extent extent) {
  store_computed(c, accumulate ? load(c, extent) + sums : sums, extent);
}

// Stores a vector of sums to the first of c's elements, or adds it: as many lanes as `columns` says, at least one.
INGOT_INLINE void store_sums(const Result& c, Floats sums, int64_t columns) {
  const auto to = [&](auto extent) {
    if (c.c_float != nullptr) {
      add_or_store(c.c_float, sums, c.accumulate, extent);
    } else {
      add_or_store(c.c_bf16, sums, c.accumulate, extent);
    }
  };
  if (columns >= lanes) {
    to(AllLanes{});
  } else {
    to(FirstLanes{static_cast<int>(columns)});
  }
}

}  // namespace ingot::cpu::INGOT_SIMD_LEVEL
