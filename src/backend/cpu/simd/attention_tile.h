// Shared by the attention kernels: the packing of operands for block_gemm.h, and the scores. Compiled once per level.
#pragma once

#include <cstdint>

#include "backend/cpu/simd/attention.h"
#include "backend/cpu/simd/block_gemm.h"
#include "backend/cpu/simd/simd.h"
#include "backend/cpu/simd/transpose.h"

namespace ingot::cpu::INGOT_SIMD_LEVEL {

// How bf16 is multiplied: as the level does, or as fp32 by fused multiply-adds.
enum class Bf16Products { of_level, fma };

namespace {

constexpr int64_t kBlock = attention_block;
constexpr int64_t kRows = attention_rows;

template <Bf16Products products>
struct Bf16StepOf {
  using Step = Bf16Operands;
};
template <>
struct Bf16StepOf<Bf16Products::fma> {
  using Step = F32Step<Bf16>;
};

inline int64_t padded(int64_t n) { return (n + kAlign - 1) / kAlign * kAlign; }

// The addresses of up to kBlock consecutive rows of an operand.
template <class E>
struct RowList {
  const E* row[kBlock];
  int64_t count;

  // To the elements of the rows that are `elements` further on.
  void advance(int64_t elements) {
    for (int64_t i = 0; i < count; ++i) row[i] += elements;
  }
};

// The addresses of all rows of an operand. Strides are in elements.
template <class E>
struct Rows {
  const E* base;
  int64_t stride;
  const int32_t* table;  // see AttentionForward
  int64_t page;

  // Rows [begin, begin + count), at most kBlock; none if count is 0 or less.
  RowList<E> list(int64_t begin, int64_t count) const {
    constexpr int64_t unlimited = int64_t{1} << 40;
    RowList<E> rows;
    rows.count = count;
    const int64_t rows_per_page = table == nullptr ? unlimited : page;
    int64_t page_index = begin / rows_per_page;
    int64_t offset = begin % rows_per_page;
    for (int64_t i = 0; i < count; ++page_index, offset = 0) {
      const E* at = base + (table == nullptr ? offset : table[page_index] * page + offset) * stride;
      for (; i < count && offset < rows_per_page; ++i, ++offset, at += stride) rows.row[i] = at;
    }
    return rows;
  }
};

// Prefetches elements that will be used soon, into L2. Into L1, Zen 4 drops some of so many prefetches.
template <class E>
void prefetch_lines(const E* elements, int64_t count) {
  const auto* bytes = reinterpret_cast<const char*>(elements);
  for (int64_t at = 0; at < count * static_cast<int64_t>(sizeof(E)); at += 64) __builtin_prefetch(bytes + at, 0, 2);
}
template <class E>
void prefetch_rows(const RowList<E>& rows, int64_t d) {
  for (int64_t i = 0; i < rows.count; ++i) prefetch_lines(rows.row[i], d);
}

// Reads rows of d elements every 64 bytes, in the order of their addresses. In decode with one query the keys and
// values come from memory, and reading them is most of the time: in this order the hardware prefetches them, and no
// read is dropped.
template <class E>
void touch_rows(const RowList<E>& rows, int64_t d) {
  for (int64_t i = 0; i < rows.count; ++i) {
    const auto* row = reinterpret_cast<const volatile char*>(rows.row[i]);
    for (int64_t byte = 0; byte < d * static_cast<int64_t>(sizeof(E)); byte += 64) (void)row[byte];
  }
}

// Word `w` of a row of `d` elements.
template <class Step>
float word(const typename Step::Element* row, int64_t w, int64_t d) {
  if constexpr (Step::pack == 1) {
    return widen(row[w]);
  } else {
    const uint32_t low = row[2 * w].bits;
    const uint32_t high = 2 * w + 1 < d ? row[2 * w + 1].bits : 0U;
    return __builtin_bit_cast(float, low | high << 16);
  }
}

// dst [count, ld words] = the rows as operand A, padded with zeros to `ld`.
template <class Step, class E = typename Step::Element>
void pack_a(float* dst, int64_t ld, const RowList<E>& rows, int64_t d) {
  for (int64_t i = 0; i < rows.count; ++i) {
    const E* row = rows.row[i];
    float* to = dst + i * ld;
    const int64_t whole = d / Step::pack;
    int64_t w = 0;
    if constexpr (sizeof(E) * Step::pack == sizeof(float)) {
      __builtin_memcpy(to, row, static_cast<size_t>(whole) * sizeof(float));
      w = whole;
    } else {
      for (; w + lanes <= whole; w += lanes) store(to + w, load(row + w, AllLanes{}), AllLanes{});
    }
    for (; w < num_words<Step>(d); ++w) to[w] = word<Step>(row, w, d);
    for (; w < ld; ++w) to[w] = 0;
  }
}

#if defined(INGOT_SIMD_avx512)
inline __m512 wide_words(__m256i bits, const Bf16*) { return (__m512)from_bf16((Halves)bits); }
inline __m512 wide_words(__m256i bits, const F16*) { return (__m512)from_f16((Halves)bits); }

// Words [w, w + 16) of a row; zeros after its end.
template <class Step>
INGOT_MASKED __m512 row_words(const typename Step::Element* row, int64_t w, int64_t d) {
  const int64_t left = d - w * Step::pack;
  if constexpr (Step::pack == 2) {
    const __mmask32 mask = left >= 32 ? ~__mmask32{0} : (__mmask32{1} << left) - 1;
    return _mm512_castsi512_ps(_mm512_maskz_loadu_epi16(mask, row + 2 * w));
  } else {
    const auto mask = static_cast<__mmask16>(left >= 16 ? 0xffff : (1 << left) - 1);
    if constexpr (sizeof(*row) == sizeof(float)) {
      return _mm512_maskz_loadu_ps(mask, row + w);
    } else {
      return wide_words(_mm256_maskz_loadu_epi16(mask, row + w), row);
    }
  }
}
#endif

// dst [padded(words of d), kBlock] = the transposed rows, as operand B whose K is d; zeros in columns count ..
// padded(count).
template <class Step, class E = typename Step::Element>
void pack_b_transposed(float* dst, const RowList<E>& rows, int64_t d) {
  const int64_t count = rows.count;
  const int64_t height = num_words<Step>(d);
#if defined(INGOT_SIMD_avx512)
  for (int64_t i = 0; i < count; i += 16) {
    for (int64_t w = 0; w < height; w += 16) {
      __m512 r[16];
      for (int j = 0; j < 16; ++j) {
        r[j] = i + j < count ? row_words<Step>(rows.row[i + j], w, d) : _mm512_setzero_ps();
      }
      transpose16(r);
      for (int j = 0; j < 16; ++j) _mm512_storeu_ps(dst + (w + j) * kBlock + i, r[j]);
    }
  }
#else
  for (int64_t i = 0; i < padded(count); ++i) {
    const E* row = i < count ? rows.row[i] : nullptr;
    for (int64_t w = 0; w < height; ++w) dst[w * kBlock + i] = row == nullptr ? 0.0F : word<Step>(row, w, d);
  }
#endif
}

// dst [words of padded(count), padded(d)] = the rows, as operand B whose K is the index of the row: word (p, j) holds
// column j of rows p * pack to p * pack + pack - 1; zeros in the padding.
template <class Step, class E = typename Step::Element>
void pack_b(float* dst, const RowList<E>& rows, int64_t d) {
  const int64_t count = rows.count;
  const int64_t ld = padded(d);
  if constexpr (Step::pack == 1) {
    pack_a<Step>(dst, ld, rows, d);
    for (int64_t i = count * ld; i < padded(count) * ld; ++i) dst[i] = 0;
  } else {
#if defined(INGOT_SIMD_avx512)
    for (int64_t i = 0; i < padded(count); i += 2) {
      const E* low = i < count ? rows.row[i] : nullptr;
      const E* high = i + 1 < count ? rows.row[i + 1] : nullptr;
      for (int64_t j = 0; j < ld; j += 16) {
        const auto mask = static_cast<__mmask16>(d - j >= 16 ? 0xffff : d > j ? (1 << (d - j)) - 1 : 0);
        __m512i pair = _mm512_setzero_si512();
        if (low != nullptr) pair = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, low + j));
        if (high != nullptr) {
          const __m512i wide = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, high + j));
          pair = _mm512_or_si512(pair, _mm512_slli_epi32(wide, 16));
        }
        _mm512_storeu_si512(dst + i / 2 * ld + j, pair);
      }
    }
#endif
  }
}

// Stores the values x of a row from column `j` on as words of operand A, in place of the row's fp32 values.
template <class Step>
INGOT_INLINE void store_as_a(float* row, int64_t j, Floats x) {
#if defined(INGOT_SIMD_avx512)
  if constexpr (Step::pack == 2) {
    _mm256_storeu_ps(row + j / 2, (__m256)_mm512_cvtneps_pbh((__m512)x));
    return;
  }
#endif
  store(row + j, x, AllLanes{});
}

#if defined(INGOT_SIMD_avx512)
// Stores 16 words of operand B: each holds the value of one column in two consecutive rows.
INGOT_INLINE void store_pairs(float* dst, Floats row, Floats next) {
  store_pair(reinterpret_cast<Bf16*>(dst), Pair{row, next});  // interleaves them
}
#endif

// Transposes words: dst [cols, rows] = src [rows, cols]; up to padded(rows) words of a row of dst are written.
inline void transpose(float* dst, int64_t dst_ld, const float* src, int64_t src_ld, int64_t rows, int64_t cols) {
#if defined(INGOT_SIMD_avx512)
  for (int64_t i = 0; i < rows; i += 16) {
    for (int64_t w = 0; w < cols; w += 16) {
      const auto mask = static_cast<__mmask16>(cols - w >= 16 ? 0xffff : (1 << (cols - w)) - 1);
      __m512 r[16];
      for (int j = 0; j < 16; ++j) {
        r[j] = i + j < rows ? _mm512_maskz_loadu_ps(mask, src + (i + j) * src_ld + w) : _mm512_setzero_ps();
      }
      transpose16(r);
      for (int j = 0; j < at_most(16, cols - w); ++j) _mm512_storeu_ps(dst + (w + j) * dst_ld + i, r[j]);
    }
  }
#else
  for (int64_t w = 0; w < cols; ++w) {
    for (int64_t i = 0; i < rows; ++i) dst[w * dst_ld + i] = src[i * src_ld + w];
  }
#endif
}

// y [d] = factor * x [d], rounded to y's type.
template <class E>
void write_row(E* y, const float* x, float factor, int64_t d) {
  const Floats scale = splat(factor);
  for_each_vector(0, d, [&](int64_t j, auto extent) { store(y + j, load(x + j, extent) * scale, extent); });
}

// y [d] += factor * x [d].
inline void add_row(float* y, const float* x, float factor, int64_t d) {
  const Floats scale = splat(factor);
  for_each_vector(0, d, [&](int64_t j, auto extent) {
    store(y + j, fma(load(x + j, extent), scale, load(y + j, extent)), extent);
  });
}

// Whether scores are more than scaled dot products (softcap, ALiBi slopes).
inline bool has_score_mod(const AttentionScores& scores) { return scores.softcap > 0 || scores.slopes != nullptr; }

// The factor that is left to be applied to dot products, after apply_score_mod() if there is a modification.
inline float score_unit(const AttentionScores& scores) { return has_score_mod(scores) ? 1.0F : scores.scale; }

constexpr float log2_e = 1.44269504F;

struct ModifiedScore {
  Floats score;
  Floats derivative;  // with respect to the scaled dot product
};

// Applies scale, softcap and ALiBi to a dot product. `distance` is the key's position minus the query's, `slope` the
// head's ALiBi slope.
INGOT_INLINE ModifiedScore apply_score_mod(const AttentionScores& scores, Floats product, Floats distance,
                                           float slope) {
  Floats score = product * scores.scale;
  Floats derivative = splat(1.0F);
  if (scores.softcap > 0) {
    const Floats tanh_score = tanh(score * (1.0F / scores.softcap));
    score = tanh_score * scores.softcap;
    derivative = fma(-tanh_score, tanh_score, derivative);
  }
  return {fma(distance, splat(slope), score), derivative};
}

// e^x, but 0 below e^-80: with ALiBi the probabilities of distant keys would be subnormal, and arithmetic on these is
// slow.
INGOT_INLINE Floats exp_or_zero(Floats x) { return x <= -80.0F ? Floats{} : exp(x); }

inline float alibi_slope(const AttentionScores& scores, int64_t head) {
  return scores.slopes == nullptr ? 0.0F : scores.slopes[head];
}

// 0, 1, 2, ...
inline Floats lane_indices() {
  Floats indices;
  for (int i = 0; i < lanes; ++i) indices[i] = static_cast<float>(i);
  return indices;
}

// The first key of the first key block that a query at `position` attends to, where blocks start at `first_key`.
inline int64_t first_block(const AttentionScores& scores, int64_t position, int64_t first_key) {
  const int64_t keys = position - scores.window + 1 - first_key;  // that are before the window
  return first_key + (keys > 0 ? keys / kBlock * kBlock : 0);
}

}  // namespace

// Defined in attention_backward.cpp; members of AttentionKernels.
void attention_delta(bool bf16, const void* dout, const void* out, float* delta, int64_t heads, int64_t head_dim,
                     int64_t row_stride, int64_t begin, int64_t end);
template <Bf16Products products>
void attention_backward_begin(const AttentionBackward& task);
template <Bf16Products products>
void attention_backward_queries(const AttentionBackward& task, const AttentionQueries& queries);
template <Bf16Products products>
void attention_backward_end(const AttentionBackward& task);

}  // namespace ingot::cpu::INGOT_SIMD_LEVEL
