// Nothing is packed: both operands are contiguous along k, so every sum is a vector of partial sums over k, in
// registers, whose lanes are added at the end. Rows of the weight are read from memory once, for all tokens.
#include "backend/cpu/simd/skinny_gemm.h"

#include "backend/cpu/simd/blocks.h"
#include "backend/cpu/simd/simd.h"
#include "backend/cpu/simd/tile_outputs.h"

namespace ingot::cpu::INGOT_SIMD_LEVEL {
namespace {

// How rows are multiplied: `size` elements of a row are loaded at a time, as one Loaded; each of its parts is
// multiplied on its own, and add() adds the products to partial sums.
template <class T>
struct Elements {
  using Element = T;
  static constexpr int size = lanes, parts = 1;
  using Loaded = Floats;
  template <class Extent>
  static Loaded load(const T* p, Extent extent) {
    return INGOT_SIMD_LEVEL::load(p, extent);
  }
  template <int>
  static Floats part(Loaded all) {
    return all;
  }
  static Floats add(Floats sum, Floats a, Floats b) { return fma(a, b, sum); }
};
#if defined(__AVX512BF16__)
struct Pairs {
  using Element = Bf16;
  static constexpr int size = 2 * lanes;
  using Loaded = __m512i;
  static Loaded load(const Bf16* p, AllLanes) { return _mm512_loadu_si512(p); }
  INGOT_MASKED Loaded load(const Bf16* p, FirstLanes extent) {
    return _mm512_maskz_loadu_epi16((1U << extent.count) - 1U, p);
  }
};
// One instruction multiplies pairs along k and adds them.
struct DotProducts : Pairs {
  static constexpr int parts = 1;
  template <int>
  static __m512i part(Loaded all) {
    return all;
  }
  static Floats add(Floats sum, __m512i a, __m512i b) {
    return (Floats)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
  }
};
// The second and then the first element of each pair, as fp32: where two fused multiply-adds take less time than that
// instruction.
struct FusedMultiplyAdds : Pairs {
  static constexpr int parts = 2;
  template <int p>
  static Floats part(Loaded pairs) {
    return floats(p == 0 ? (Words)pairs & 0xffff0000U : (Words)pairs << 16);
  }
  static Floats add(Floats sum, Floats a, Floats b) { return fma(a, b, sum); }
};
#endif

// The rows of a weight, as a tile reads them: vectors of P::size elements.
template <class P>
struct PlainRows {
  using Products = P;
  using T = typename P::Element;
  static constexpr int64_t vector_bytes = P::size * static_cast<int64_t>(sizeof(T));
  static constexpr bool decodes = false;
  // With little other work, the hardware prefetches what is read.
  static constexpr bool hardware_prefetches = true;
  // Software prefetches go into L2. From there the hardware continues; on Zen 4, many at once into L1 delay the loads.
  static constexpr int prefetch_locality = 2;
  const T* data;
  int64_t stride;  // elements from row to row

  PlainRows rows_from(int64_t row) const { return {data + row * stride, stride}; }
  const unsigned char* at(int64_t row, int64_t i) const {
    return reinterpret_cast<const unsigned char*>(data + row * stride + i);
  }
  template <class Extent>
  typename P::Loaded load(int64_t row, int64_t i, Extent extent) const {
    return P::load(data + row * stride + i, extent);
  }
};
#if defined(__AVX512BF16__)
// Quantised blocks, decoded to bf16 when loaded, with the same result as decoding whole rows.
template <class P, class Block>
struct BlockRows {
  using Products = P;
  static constexpr int64_t vector_bytes = Block::bytes;
  static constexpr bool decodes = true;
  static constexpr bool hardware_prefetches = false;
  static constexpr int prefetch_locality = 3;  // into L1: from L2, one token takes 1.4 times as long on Zen 4
  const unsigned char* data;
  int64_t row_bytes;

  BlockRows rows_from(int64_t row) const { return {data + row * row_bytes, row_bytes}; }
  const unsigned char* at(int64_t row, int64_t i) const {
    return data + row * row_bytes + i / block_elements * Block::bytes;
  }
  template <class Extent>
  __m512i load(int64_t row, int64_t i, Extent) const {
    return Block::decode(at(row, i));
  }
};
#endif

template <class Rows>
using ElementOf = typename Rows::Products::Element;
template <class Rows>
using OutputsOf = Outputs<ElementOf<Rows>>;

// Software prefetch during a tile, in memory order, whatever the order in which the tiles are read. With few tokens,
// whose tiles take less time than the memory's latency: of the data that lies `distance` bytes after the tile's rows.
// `locality`: the last argument of __builtin_prefetch, 3 for L1 and 2 for L2.
struct NoPrefetch {};
template <int locality>
struct Prefetch {
  int64_t distance;
};
[[maybe_unused]] constexpr Prefetch<3> prefetch_1k_later{1 << 10};
template <class Rows>
constexpr Prefetch<Rows::prefetch_locality> prefetch_2k_later{2 << 10};
constexpr Prefetch<3> prefetch_4k_later{4 << 10};

// With many tokens: of part `part` of the `parts` equal parts of the next rows, so that as many tiles, of different
// tokens, share the reading of memory evenly.
template <int parts>
struct PrefetchPart {
  int64_t part;
};

// Asks for the memory `ahead` of the first `rows` rows of w: step `step` of `step_bytes` of each row.
template <int rows, int64_t step_bytes, class Rows>
INGOT_INLINE void prefetch(NoPrefetch, const Rows&, int64_t) {}
template <int rows, int64_t step_bytes, class Rows, int locality>
INGOT_INLINE void prefetch(Prefetch<locality> ahead, const Rows& w, int64_t step) {
  const unsigned char* at = w.at(rows, 0) + ahead.distance + step * rows * step_bytes;
  INGOT_UNROLL
  for (int64_t b = 0; b < rows * step_bytes; b += 64) __builtin_prefetch(at + b, 0, locality);
}
template <int rows, int64_t step_bytes, class Rows, int parts>
INGOT_INLINE void prefetch(PrefetchPart<parts> ahead, const Rows& w, int64_t step) {
  const unsigned char* end = w.at(rows, 0);
  const unsigned char* at = end + (ahead.part * (end - w.at(0, 0)) + step * rows * step_bytes) / parts;
  INGOT_UNROLL
  for (int64_t b = 0; b < rows * step_bytes / parts; b += 64) __builtin_prefetch(at + b, 0, Rows::prefetch_locality);
}

template <int number>
struct Part {
  static constexpr int value = number;
};
// Calls body(Part<p>{}) for each part p of P.
template <class P, class Body>
INGOT_INLINE void for_each_part(Body body) {
  body(Part<0>{});
  if constexpr (P::parts == 2) body(Part<1>{});
}

// One step at element i.
template <int tokens, int rows, class Rows, class Ahead, class Extent>
INGOT_INLINE void add_step(Floats (&sums)[tokens][rows], const ElementOf<Rows>* x, const Rows& w, int64_t k, int64_t i,
                           Ahead ahead, Extent extent) {
  using P = typename Rows::Products;
  prefetch<rows, Rows::vector_bytes>(ahead, w, i / P::size);
  if constexpr (Rows::decodes) {
    INGOT_UNROLL
    for (int r = 0; r < rows; ++r) {
      const typename P::Loaded right = w.load(r, i, extent);
      INGOT_UNROLL
      for (int t = 0; t < tokens; ++t) {
        const typename P::Loaded left = P::load(x + t * k + i, extent);
        for_each_part<P>([&](auto p) {
          sums[t][r] = P::add(sums[t][r], P::template part<p.value>(left), P::template part<p.value>(right));
        });
      }
    }
  } else {
    Rows from = w;
    for_each_part<P>([&](auto p) {
      // Parts are loaded when they are multiplied, since all of them would take too many registers. The asm hides from
      // the compiler that the same words are loaded again.
      if constexpr (p.value > 0) asm("" : "+r"(x), "+r"(from.data));
      decltype(P::template part<p.value>({})) left[tokens];
      INGOT_UNROLL
      for (int t = 0; t < tokens; ++t) left[t] = P::template part<p.value>(P::load(x + t * k + i, extent));
      INGOT_UNROLL
      for (int r = 0; r < rows; ++r) {
        const auto right = P::template part<p.value>(from.load(r, i, extent));
        INGOT_UNROLL
        for (int t = 0; t < tokens; ++t) sums[t][r] = P::add(sums[t][r], left[t], right);
      }
    });
  }
}

#if defined(__AVX512BF16__)
// `count` blocks, one or two, from block first + b on, of every row; `scales` are those of the blocks from `first` on.
template <int count, class P, int tokens, int rows, class Ahead, int64_t converted>
INGOT_INLINE void add_blocks(Floats (&sums)[tokens][rows], const Bf16* x, const BlockRows<P, Q4Block>& w,
                             const float (&scales)[rows][converted], int64_t k, int64_t first, int64_t b, Ahead ahead) {
  const int64_t i = (first + b) * block_elements;
  prefetch<rows, count * Q4Block::bytes>(ahead, w, (first + b) / count);
  INGOT_UNROLL
  for (int r = 0; r < rows; ++r) {
    __m512i decoded[2];
    if constexpr (count == 2) {
      Q4Block::decode_two(w.at(r, i), splat(scales[r][b]), splat(scales[r][b + 1]), decoded);
    } else {
      decoded[0] = Q4Block::decode(w.at(r, i), splat(scales[r][b]));
    }
    INGOT_UNROLL
    for (int t = 0; t < tokens; ++t) {
      INGOT_UNROLL
      for (int c = 0; c < count; ++c) {
        const __m512i left = P::load(x + t * k + i + c * block_elements, AllLanes{});
        for_each_part<P>([&](auto p) {
          sums[t][r] = P::add(sums[t][r], P::template part<p.value>(left), P::template part<p.value>(decoded[c]));
        });
      }
    }
  }
}
#endif

// The sums of `tokens` rows of x with `rows` rows of w.
template <int tokens, int rows, class Rows, class Ahead>
INGOT_INLINE void add_all(Floats (&sums)[tokens][rows], const ElementOf<Rows>* x, const Rows& w, int64_t k,
                          Ahead ahead) {
  constexpr int size = Rows::Products::size;
  for (int t = 0; t < tokens; ++t) {
    for (int r = 0; r < rows; ++r) sums[t][r] = Floats{};
  }
  int64_t i = 0;
  for (; i + size <= k; i += size) add_step(sums, x, w, k, i, ahead, AllLanes{});
  if (i < k) add_step(sums, x, w, k, i, ahead, FirstLanes{static_cast<int>(k - i)});
}

// A tile of tokens x rows, starting at `token` and `row`; one row, or a multiple of four. Inlined, the registers of
// many such loops would be saved around each of them, which takes longer than the call.
template <int tokens, int rows, class Rows, class Ahead>
INGOT_NOINLINE void tile(const OutputsOf<Rows>& y, const ElementOf<Rows>* x, const Rows& weight, int64_t k,
                         int64_t token, int64_t row, Ahead ahead) {
  Floats sums[tokens][rows];
  add_all(sums, x + token * k, weight.rows_from(row), k, ahead);
  store_tile(y, sums, token, row);
}

#if defined(__AVX512BF16__)
// 4-bit blocks, whose decoding takes longer than reading them: scales are converted before their blocks, one
// instruction each, and broadcast when loaded, and two blocks are decoded together.
template <int tokens, int rows, class P, class Ahead>
INGOT_NOINLINE void tile(const Outputs<Bf16>& y, const Bf16* x, const BlockRows<P, Q4Block>& weight, int64_t k,
                         int64_t token, int64_t row, Ahead ahead) {
  constexpr int64_t converted = 64;  // scales of a row
  float scales[rows][converted];
  Floats sums[tokens][rows];
  for (int t = 0; t < tokens; ++t) {
    for (int r = 0; r < rows; ++r) sums[t][r] = Floats{};
  }
  x += token * k;
  const BlockRows<P, Q4Block> w = weight.rows_from(row);
  const int64_t blocks = k / block_elements;
  for (int64_t first = 0; first < blocks; first += converted) {
    const int64_t count = blocks - first < converted ? blocks - first : converted;
    for (int r = 0; r < rows; ++r) {
      for (int64_t b = 0; b < count; ++b) scales[r][b] = one_scale(w.at(r, (first + b) * block_elements));
    }
    int64_t b = 0;
    for (; b + 2 <= count; b += 2) add_blocks<2>(sums, x, w, scales, k, first, b, ahead);
    if (b < count) add_blocks<1>(sums, x, w, scales, k, first, b, ahead);
  }
  store_tile(y, sums, token, row);
}

// The same with values as fp32 from a table: a multiplication instead of two and a rounding, and nothing is widened.
// For one or two tokens: of more, the elements of x would not fit into the registers.
template <int tokens, int rows, class Ahead>
  requires(tokens <= 2)
INGOT_NOINLINE void tile(const Outputs<Bf16>& y, const Bf16* x, const BlockRows<FusedMultiplyAdds, Q4Block>& weight,
                         int64_t k, int64_t token, int64_t row, Ahead ahead) {
  constexpr int64_t converted = 64;  // scales of a row
  float scales[converted], powers[rows][converted];
  uint32_t mantissas[rows][converted];
  Floats sums[tokens][rows];
  for (int t = 0; t < tokens; ++t) {
    for (int r = 0; r < rows; ++r) sums[t][r] = Floats{};
  }
  x += token * k;
  const auto w = weight.rows_from(row);
  const int64_t blocks = k / block_elements;
  for (int64_t first = 0; first < blocks; first += converted) {
    const int64_t count = blocks - first < converted ? blocks - first : converted;
    for (int r = 0; r < rows; ++r) {
      for (int64_t b = 0; b < count; ++b) scales[b] = one_scale(w.at(r, (first + b) * block_elements));
      for (int64_t b = 0; b < count; b += lanes) {
        const Floats scale = load(scales + b, AllLanes{});
        const Words bits = words(scale);
        store(powers[r] + b, scale == scale ? floats(bits & 0xff800000U) : scale, AllLanes{});
        const Words mantissa = bits >> 13 & 0x3ffU;
        __builtin_memcpy(mantissas[r] + b, &mantissa, sizeof mantissa);
      }
    }
    for (int64_t b = 0; b < count; ++b) {
      const int64_t i = (first + b) * block_elements;
      prefetch<rows, Q4Block::bytes>(ahead, w, first + b);
      INGOT_UNROLL
      for (int r = 0; r < rows; ++r) {
        const Q4Pairs right = Q4Pairs::decode(w.at(r, i), q4_values.row[mantissas[r][b]], powers[r][b]);
        INGOT_UNROLL
        for (int t = 0; t < tokens; ++t) {
          const Words left = Q4Pairs::order(FusedMultiplyAdds::load(x + t * k + i, AllLanes{}));
          sums[t][r] = fma(floats(left & 0xffff0000U), right.second, sums[t][r]);
          sums[t][r] = fma(floats(left << 16), right.first, sums[t][r]);
        }
      }
    }
  }
  for (int t = 0; t < tokens; ++t) {
    for (int r = 0; r < rows; ++r) sums[t][r] = Q4Pairs::reorder(sums[t][r]);
  }
  store_tile(y, sums, token, row);
}
#endif

#if defined(__AVX512F__)
constexpr int max_tokens = 6;  // per tile of four rows: 24 sums, 6 of x, 1 of w, of 32 registers
#elif defined(__aarch64__)
constexpr int max_tokens = 5;
#else
constexpr int max_tokens = 2;  // 8 sums, 2 of x, 1 of w, of 16
#endif

// A tile of `count` tokens, at most `limit`.
template <int limit, int rows, class Ahead, class Rows>
void tile_tokens_up_to(const OutputsOf<Rows>& y, const ElementOf<Rows>* x, const Rows& w, int64_t k, int64_t token,
                       int64_t row, int64_t count, Ahead ahead) {
  if (count == limit) return tile<limit, rows>(y, x, w, k, token, row, ahead);
  if constexpr (limit > 1) tile_tokens_up_to<limit - 1, rows>(y, x, w, k, token, row, count, ahead);
}

// The whole tiles of tokens [first, end); returns the next token.
template <int parts, int rows, class Rows>
int64_t whole_tiles(const OutputsOf<Rows>& y, const ElementOf<Rows>* x, const Rows& w, int64_t k, int64_t first,
                    int64_t end, int64_t row) {
  int64_t token = first;
  for (int64_t part = 0; token + max_tokens <= end; ++part, token += max_tokens) {
    if (part < parts) {
      tile<max_tokens, rows>(y, x, w, k, token, row, PrefetchPart<parts>{part});
    } else {
      tile<max_tokens, rows>(y, x, w, k, token, row, NoPrefetch{});
    }
  }
  return token;
}

// Tokens [first, end) times `rows` rows from `row` on.
template <int rows, class Rows>
void tiles(const OutputsOf<Rows>& y, const ElementOf<Rows>* x, const Rows& w, int64_t k, int64_t first, int64_t end,
           int64_t row) {
  const int64_t whole = (end - first) / max_tokens;
  // Blocks are decoded for each tile again, so there is never more than one; a single row is too little to divide.
  constexpr bool divides = rows > 1 && Rows::hardware_prefetches;
  int64_t token = first;
  if (divides && whole >= 4) {
    token = whole_tiles<divides ? 4 : 1, rows>(y, x, w, k, first, end, row);
  } else if (divides && whole >= 2) {
    token = whole_tiles<divides ? 2 : 1, rows>(y, x, w, k, first, end, row);
  } else {
    token = whole_tiles<1, rows>(y, x, w, k, first, end, row);
  }
  const int64_t left = end - token;
  if (left == 0) return;
  if (whole == 0 && (left > 2 || !Rows::hardware_prefetches)) {
    tile_tokens_up_to<max_tokens - 1, rows>(y, x, w, k, token, row, left, prefetch_2k_later<Rows>);
  } else {
    tile_tokens_up_to<max_tokens - 1, rows>(y, x, w, k, token, row, left, NoPrefetch{});
  }
}

// With few tokens tiles have up to eight rows, for enough independent sums.
constexpr int few_tokens = max_tokens / 2;

// `tokens` <= few_tokens, times as many of the rows [row, last) as make whole tiles; returns the next row.
template <int rows, class Rows, class Ahead>
int64_t tiles_of_few_tokens(const OutputsOf<Rows>& y, const ElementOf<Rows>* x, const Rows& w, int64_t k, int64_t first,
                            int64_t tokens, int64_t row, int64_t last, Ahead ahead) {
  for (; row + rows <= last; row += rows) {
    tile_tokens_up_to<few_tokens, rows>(y, x, w, k, first, row, tokens, ahead);
  }
  return row;
}
template <class P>
int64_t tiles_of_few_tokens(const Outputs<typename P::Element>& y, const typename P::Element* x, const PlainRows<P>& w,
                            int64_t k, int64_t first, int64_t tokens, int64_t row, int64_t last, RowOrder order) {
  if (tokens > 2) {
    return tiles_of_few_tokens<8>(y, x, w, k, first, tokens, row, last, prefetch_2k_later<PlainRows<P>>);
  }
  if (order == RowOrder::prefetched) {
    return tiles_of_few_tokens<4>(y, x, w, k, first, tokens, row, last, prefetch_4k_later);
  }
  return tiles_of_few_tokens<8>(y, x, w, k, first, tokens, row, last, NoPrefetch{});
}
#if defined(__AVX512BF16__)
// Blocks need prefetches in every order, since their decoding leaves the hardware too little to look ahead at. Where
// `streams` is best for other weights (Zen 4), fewer rows and a shorter distance are best for blocks.
template <class P, class Block>
int64_t tiles_of_few_tokens(const Outputs<Bf16>& y, const Bf16* x, const BlockRows<P, Block>& w, int64_t k,
                            int64_t first, int64_t tokens, int64_t row, int64_t last, RowOrder order) {
  if (order == RowOrder::streams) {
    return tiles_of_few_tokens<4>(y, x, w, k, first, tokens, row, last, prefetch_1k_later);
  }
  return tiles_of_few_tokens<8>(y, x, w, k, first, tokens, row, last, prefetch_2k_later<BlockRows<P, Block>>);
}
#endif

// One to three tokens times the rows of four streams, each of a quarter of the rows; returns the next row.
constexpr int num_streams = 4;
template <int tokens, class P>
int64_t rows_of_streams(const Outputs<typename P::Element>& y, const typename P::Element* x, const PlainRows<P>& w,
                        int64_t rows, int64_t k) {
  const int64_t each = rows / num_streams;
  for (int64_t row = 0; row < each; ++row) {
    Floats sums[tokens][num_streams];
    add_all(sums, x, PlainRows<P>{w.data + row * k, each * k}, k, NoPrefetch{});
    for (int t = 0; t < tokens; ++t) {
      const Four sum = sum_four(sums[t][0], sums[t][1], sums[t][2], sums[t][3]);
      for (int s = 0; s < num_streams; ++s) store_one(y, t, row + s * each, sum[s]);
    }
  }
  return each * num_streams;
}
template <class P>
int64_t rows_of_streams(const Outputs<typename P::Element>& y, const typename P::Element* x, const PlainRows<P>& w,
                        int64_t tokens, int64_t rows, int64_t k, RowOrder order) {
  if (order != RowOrder::streams) return 0;
  switch (tokens) {
    case 1: return rows_of_streams<1>(y, x, w, rows, k);
    case 2: return rows_of_streams<2>(y, x, w, rows, k);
    case 3: return rows_of_streams<3>(y, x, w, rows, k);
    default: return 0;
  }
}
#if defined(__AVX512BF16__)
template <class P, class Block>
int64_t rows_of_streams(const Outputs<Bf16>&, const Bf16*, const BlockRows<P, Block>&, int64_t, int64_t, int64_t,
                        RowOrder) {
  return 0;
}
#endif

template <class Rows>
void all_tiles(const OutputsOf<Rows>& y, const ElementOf<Rows>* x, const Rows& w, int64_t tokens, int64_t rows,
               int64_t k, RowOrder order) {
  // Bytes of a group of tokens, while the rows of a span are streamed, and of a span of rows, while all groups are
  // multiplied with it. With AVX-512, whose processors have an L2 of 1 MiB or more, both stay there; elsewhere the
  // group stays in L1.
#if defined(__AVX512F__)
  constexpr int64_t group_bytes = 128 << 10;
#else
  constexpr int64_t group_bytes = 30 << 10;
#endif
  constexpr int64_t span_bytes = 384 << 10;
  const int64_t row_bytes = (k > 0 ? k : 1) * static_cast<int64_t>(sizeof(ElementOf<Rows>));
  const int64_t fitting = group_bytes / row_bytes / max_tokens * max_tokens;
  const int64_t group = fitting > max_tokens ? fitting : max_tokens;
  const int64_t span = span_bytes / row_bytes / 8 * 8 + 8;
  for (int64_t begin = rows_of_streams(y, x, w, tokens, rows, k, order); begin < rows; begin += span) {
    const int64_t last = begin + span < rows ? begin + span : rows;
    for (int64_t first = 0; first < tokens; first += group) {
      const int64_t end = first + group < tokens ? first + group : tokens;
      int64_t row = begin;
      if (end - first <= few_tokens) row = tiles_of_few_tokens(y, x, w, k, first, end - first, row, last, order);
      for (; row + 4 <= last; row += 4) tiles<4>(y, x, w, k, first, end, row);
      for (; row < last; ++row) tiles<1>(y, x, w, k, first, end, row);
    }
  }
}

template <class P>
void skinny_gemm(float* y_float, typename P::Element* y_typed, int64_t y_row, const typename P::Element* x,
                 const typename P::Element* w, int64_t tokens, int64_t rows, int64_t k, bool accumulate,
                 RowOrder order) {
  const Outputs<typename P::Element> y{y_float, y_typed, y_row, accumulate};
  all_tiles(y, x, PlainRows<P>{w, k}, tokens, rows, k, order);
}

#if defined(__AVX512BF16__)
template <class P, class Block>
void block_skinny_gemm(float* y_float, Bf16* y_typed, int64_t y_row, const Bf16* x, const void* w, int64_t tokens,
                       int64_t rows, int64_t k, bool accumulate, RowOrder order) {
  const BlockRows<P, Block> blocks{static_cast<const unsigned char*>(w), k / block_elements * Block::bytes};
  all_tiles(Outputs<Bf16>{y_float, y_typed, y_row, accumulate}, x, blocks, tokens, rows, k, order);
}
#endif

}  // namespace

#if defined(__AVX512BF16__)
const SkinnyGemmKernels skinny_gemm_kernels = {
    {skinny_gemm<Elements<float>>, skinny_gemm<DotProducts>, skinny_gemm<Elements<F16>>},
    block_skinny_gemm<DotProducts, Q8Block>,
    block_skinny_gemm<DotProducts, Q4Block>,
    max_tokens,
    nullptr};
const SkinnyGemmKernels skinny_gemm_fma_kernels = {
    {skinny_gemm<Elements<float>>, skinny_gemm<FusedMultiplyAdds>, skinny_gemm<Elements<F16>>},
    block_skinny_gemm<FusedMultiplyAdds, Q8Block>,
    block_skinny_gemm<FusedMultiplyAdds, Q4Block>,
    max_tokens,
    widened_gemm};
#else
const SkinnyGemmKernels skinny_gemm_kernels = {
    {skinny_gemm<Elements<float>>, skinny_gemm<Elements<Bf16>>, skinny_gemm<Elements<F16>>},
    nullptr,
    nullptr,
    max_tokens,
    nullptr};
#endif

}  // namespace ingot::cpu::INGOT_SIMD_LEVEL
