// Backward attention (Dao 2023, arXiv 2307.08691): recomputes the probabilities from the scores and lse, one key block
// at a time, each with the query blocks that attend to some of it.
//   P = exp(score(scale q k) - lse), dP = dout v, dS = P (dP - delta) score', dv = P^T dout, dq = scale dS k,
//   dk = scale dS^T q; score is the identity unless there is a softcap or a slope.
// Scores and dP are computed once, as [key, query]. In this layout P and dS are operand A of the gemms for dv and dk;
// dq is computed transposed, dq^T = k^T dS, with dS as operand B. An element of dq is one chain over the keys in order,
// an element of dk or dv one chain over the heads and then the queries, so no sum depends on the number of threads.
#include "backend/cpu/simd/attention_tile.h"

namespace ingot::cpu::INGOT_SIMD_LEVEL {
namespace {

constexpr int64_t kStrip = 2 * kAlign;  // keys and queries per strip of a block on the diagonal, for dq

// The contents of the scratch of a call, each [kBlock, width] unless stated otherwise.
struct Panels {
  float* keys;             // operand A: k
  float* values;           // operand A: v
  float* transposed_keys;  // [width, kBlock]: operand A: k^T
  float* dk;
  float* dv;
  float* transposed_q;     // [words, kBlock]: operand B: q^T
  float* transposed_dout;  // like transposed_q
  float* q;                // operand B
  float* dout;             // operand B
  float* dq;               // [width, kBlock]: dq^T of queries that attend to this block alone
  float* scores;           // [kBlock, kBlock]: [key, query]; then P as operand A
  float* dscores;          // [kBlock, kBlock]: dP [key, query]; then dS as operand A
  float* dscores_b;        // [kBlock / pack, kBlock]: dS as operand B
  float* lse;              // [kBlock]
  float* delta;            // [kBlock]
  int64_t width;
};

Panels divide_scratch(const AttentionBackward& task) {
  Panels panels{};
  panels.width = padded(task.head_dim);
  auto* at = static_cast<float*>(task.scratch);
  const auto allocate = [&at](int64_t count) {
    float* begin = at;
    at += count;
    return begin;
  };
  const int64_t panel = kBlock * panels.width;
  panels.keys = allocate(panel);
  panels.values = allocate(panel);
  panels.transposed_keys = allocate(panel);
  panels.dk = allocate(panel);
  panels.dv = allocate(panel);
  panels.transposed_q = allocate(panel);
  panels.transposed_dout = allocate(panel);
  panels.q = allocate(panel);
  panels.dout = allocate(panel);
  panels.dq = allocate(panel);
  panels.scores = allocate(kBlock * kBlock);
  panels.dscores = allocate(kBlock * kBlock);
  panels.dscores_b = allocate(kBlock * kBlock);
  panels.lse = allocate(kBlock);
  panels.delta = allocate(kBlock);
  return panels;
}

template <class E>
Rows<E> head_rows(const void* base, int64_t head, int64_t head_dim, int64_t stride) {
  return {static_cast<const E*>(base) + head * head_dim, stride, nullptr, 1};
}

template <class Step>
void run_begin(const AttentionBackward& task) {
  const Panels panels = divide_scratch(task);
  const int64_t d = task.head_dim;
  const int64_t rows = task.end - task.begin;
  using E = typename Step::Element;
  const RowList<E> k = head_rows<E>(task.k, 0, d, task.kv_stride).list(task.begin - task.first_key, rows);
  const RowList<E> v = head_rows<E>(task.v, 0, d, task.kv_stride).list(task.begin - task.first_key, rows);
  pack_a<Step>(panels.keys, panels.width, k, d);
  pack_a<Step>(panels.values, panels.width, v, d);
  pack_b<Step>(panels.transposed_q, k, d);  // which holds no queries yet
  transpose(panels.transposed_keys, kBlock, panels.transposed_q, panels.width, num_words<Step>(padded(rows)), d);
  for (int64_t i = 0; i < rows * panels.width; ++i) panels.dk[i] = panels.dv[i] = 0;
}

// A block of scores [key, query].
struct ScoreBlock {
  int64_t rows;         // keys
  int64_t columns;      // queries, padded
  int64_t missing;      // queries at the beginning that there are not
  int64_t num_queries;  // without the padding
  int64_t first_query;  // of those that attend to key 0 of the block, relative to the block; may be negative
  bool on_diagonal;     // keys are some of the queries' tokens: query j attends to none of keys j + 1 .. of the block
};

// Writes dq, dk or dv, whose rows are of elements E or, with is_partial, f32: d of them, from element `at` on.
template <class E>
void write_gradient(const AttentionBackward& task, void* gradient, int64_t at, const float* x, float factor) {
  if (!task.is_partial) return write_row(static_cast<E*>(gradient) + at, x, factor, task.head_dim);
  float* const y = static_cast<float*>(gradient) + at;
  task.accumulate ? add_row(y, x, factor, task.head_dim) : write_row(y, x, factor, task.head_dim);
}

// Calls body(first key, keys, first query) for strips of keys that have gemms of their own. On the diagonal, the
// queries before a strip attend to none of its keys and are left out: their products would be with zeros, which change
// no finite sum.
template <class Body>
void for_each_strip(const ScoreBlock& block, Body body) {
  const int64_t step = block.on_diagonal ? kAlign : kBlock;
  for (int64_t i = 0; i < block.rows; i += step) body(i, at_most(step, block.rows - i), i);
}

// Converts scores and dP to P and dS. `HasScoreMod`: see has_score_mod(). `HasMask`: some query does not attend to
// some key.
template <class Step, bool HasScoreMod, bool HasMask>
void softmax_gradient(const AttentionScores& score_rule, const Panels& panels, const ScoreBlock& block, float slope) {
  constexpr int pack = static_cast<int>(Step::pack);
  const Floats unit = splat(score_rule.scale * log2_e);
  const Floats indices = lane_indices();
  Ints lane;
  for (int i = 0; i < lanes; ++i) lane[i] = i;
  for (int64_t r = 0; r < block.rows; r += pack) {
    // On the diagonal, dq reads strips of kStrip keys and queries, so their elements that no gemm assigned become 0
    // too.
    for (int64_t j = block.on_diagonal ? r / kStrip * kStrip : 0; j < block.columns; j += lanes) {
      const Floats lse = load(panels.lse + j, AllLanes{});
      const Floats offset = lse * -log2_e;
      const Floats delta = load(panels.delta + j, AllLanes{});
      Floats ds[pack];
      for (int i = 0; i < pack; ++i) {
        const int64_t at = (r + i) * kBlock + j;
        const int64_t first_query = block.first_query + r + i;
        Floats p = load(panels.scores + at, AllLanes{});
        Floats dscore = load(panels.dscores + at, AllLanes{});
        if constexpr (HasScoreMod) {
          const ModifiedScore score =
              apply_score_mod(score_rule, p, static_cast<float>(first_query - j) - indices, slope);
          p = exp_or_zero(score.score - lse);
          dscore = p * (dscore - delta) * score.derivative;
        } else {
          p = exp2(fma(p, unit, offset));
          dscore = p * (dscore - delta);
        }
        if constexpr (HasMask) {
          const int64_t end_query =
              r + i < block.rows ? at_most(block.num_queries, first_query + score_rule.window) : 0;
          const Ints query = lane + static_cast<int32_t>(j);
          const int64_t begin_query = first_query > block.missing ? first_query : block.missing;
          const Ints masked = (query < static_cast<int32_t>(begin_query)) | (query >= static_cast<int32_t>(end_query));
          p = masked ? Floats{} : p;
          dscore = masked ? Floats{} : dscore;
        }
        store_as_a<Step>(panels.scores + (r + i) * kBlock, j, p);
        store_as_a<Step>(panels.dscores + (r + i) * kBlock, j, dscore);
        ds[i] = dscore;
      }
#if defined(INGOT_SIMD_avx512)
      if constexpr (pack == 2) store_pairs(panels.dscores_b + r / 2 * kBlock + j, ds[0], ds[1]);
#endif
    }
  }
}

// The rows, after `missing` places that repeat the first of them: whatever is computed there is masked.
template <class E>
RowList<E> list_after(const RowList<E>& rows, int64_t missing) {
  if (missing == 0) return rows;
  RowList<E> shifted;
  shifted.count = rows.count + missing;
  for (int64_t i = 0; i < shifted.count; ++i) shifted.row[i] = rows.row[i > missing ? i - missing : 0];
  return shifted;
}

template <class Step>
void run_queries(const AttentionBackward& task, const AttentionQueries& queries) {
  using E = typename Step::Element;
  const Panels panels = divide_scratch(task);
  const int64_t d = task.head_dim;
  const int64_t width = panels.width;
  const int64_t count = at_most(kBlock, task.end_query - queries.begin);
  const int64_t missing = queries.begin < task.first_query ? task.first_query - queries.begin : 0;
  const int64_t first = queries.begin + missing - task.first_query;  // row of the first query that there is
  const Rows<E> all_q = head_rows<E>(task.q, queries.head, d, task.q_stride);
  const Rows<E> all_dout = head_rows<E>(task.dout, queries.head, d, task.q_stride);
  const RowList<E> q = list_after(all_q.list(first, count - missing), missing);
  const RowList<E> dout = list_after(all_dout.list(first, count - missing), missing);
  const bool on_diagonal = queries.begin == task.begin / kBlock * kBlock;
  // On the diagonal, no query attends to keys after the last query.
  const int64_t rows = on_diagonal ? at_most(task.end - task.begin, count) : task.end - task.begin;
  const ScoreBlock block{rows, padded(count), missing, count, task.begin - queries.begin, on_diagonal};
  pack_b_transposed<Step>(panels.transposed_q, q, d);
  pack_b_transposed<Step>(panels.transposed_dout, dout, d);
  pack_b<Step>(panels.q, q, d);
  pack_b<Step>(panels.dout, dout, d);
  for (int64_t j = 0; j < block.columns; ++j) {
    const int64_t at = queries.head * task.row_stride + first + j - missing;
    const bool is_there = j >= missing && j < count;
    panels.lse[j] = is_there ? task.lse[at] : 0;
    panels.delta[j] = is_there ? task.delta[at] : 0;
  }
  const int64_t next = first + count - missing, left = task.end_query - queries.begin - count;
  prefetch_rows(all_q.list(next, at_most(kBlock, left)), d);
  prefetch_rows(all_dout.list(next, at_most(kBlock, left)), d);
  if (!queries.first) prefetch_lines(queries.sums, d * kBlock);
  for_each_strip(block, [&](int64_t row, int64_t keys, int64_t from) {
    const int64_t at = row * kBlock + from;
    const int64_t columns = block.columns - from;
    product<Step>(panels.scores + at, kBlock, panels.keys + row * width, width, panels.transposed_q + from, kBlock,
                  keys, columns, num_words<Step>(d), false);
    product<Step>(panels.dscores + at, kBlock, panels.values + row * width, width, panels.transposed_dout + from,
                  kBlock, keys, columns, num_words<Step>(d), false);
  });
  const bool is_unmasked = !block.on_diagonal && block.first_query + task.scores.window >= block.columns &&
                           rows == kBlock && count == block.columns && missing == 0;
  const float slope = alibi_slope(task.scores, queries.head);
  if (has_score_mod(task.scores)) {
    is_unmasked ? softmax_gradient<Step, true, false>(task.scores, panels, block, slope)
                : softmax_gradient<Step, true, true>(task.scores, panels, block, slope);
  } else {
    is_unmasked ? softmax_gradient<Step, false, false>(task.scores, panels, block, slope)
                : softmax_gradient<Step, false, true>(task.scores, panels, block, slope);
  }
  for_each_strip(block, [&](int64_t row, int64_t keys, int64_t from) {
    const int64_t word = from / Step::pack;
    const int64_t at = row * kBlock + word;
    const int64_t depth = num_words<Step>(block.columns - from);
    product<Step>(panels.dv + row * width, width, panels.scores + at, kBlock, panels.dout + word * width, width, keys,
                  width, depth, true);
    product<Step>(panels.dk + row * width, width, panels.dscores + at, kBlock, panels.q + word * width, width, keys,
                  width, depth, true);
  });
  const float* dscores_b = Step::pack == 1 ? panels.dscores : panels.dscores_b;
  float* sums = queries.first && queries.last ? panels.dq : queries.sums;
  const int64_t step = block.on_diagonal ? kStrip : kBlock;
  for (int64_t j = 0; j < block.columns; j += step) {
    const int64_t keys = block.on_diagonal ? at_most(rows, j + step) : rows;
    product<Step>(sums + j, kBlock, panels.transposed_keys, kBlock, dscores_b + j, kBlock, d,
                  at_most(step, block.columns - j), num_words<Step>(keys), !queries.first);
  }
  if (!queries.last) return;
  // dq, in the memory of q^T, which is not needed any more.
  transpose(panels.transposed_q, width, sums, kBlock, d, count);
  for (int64_t r = missing; r < count; ++r) {
    const int64_t at = (first + r - missing) * task.q_stride + queries.head * d;
    write_gradient<E>(task, task.dq, at, panels.transposed_q + r * width, task.scores.scale);
  }
}

template <class Step>
void run_end(const AttentionBackward& task) {
  using E = typename Step::Element;
  const Panels panels = divide_scratch(task);
  for (int64_t r = 0; r < task.end - task.begin; ++r) {
    const int64_t at = (task.begin - task.first_key + r) * task.kv_stride;
    write_gradient<E>(task, task.dk, at, panels.dk + r * panels.width, task.scores.scale);
    write_gradient<E>(task, task.dv, at, panels.dv + r * panels.width, 1.0F);
  }
}

template <class E>
void run_delta(const E* dout, const E* out, float* delta, int64_t heads, int64_t head_dim, int64_t row_stride,
               int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t at = (t * heads + h) * head_dim;
      Floats terms{};
      for_each_vector(0, head_dim, [&](int64_t j, auto extent) {
        terms = fma(load(dout + at + j, extent), load(out + at + j, extent), terms);
      });
      delta[h * row_stride + t] = reduce_add(terms);
    }
  }
}

}  // namespace

void attention_delta(bool bf16, const void* dout, const void* out, float* delta, int64_t heads, int64_t head_dim,
                     int64_t row_stride, int64_t begin, int64_t end) {
  if (bf16) {
    run_delta(static_cast<const Bf16*>(dout), static_cast<const Bf16*>(out), delta, heads, head_dim, row_stride, begin,
              end);
  } else {
    run_delta(static_cast<const float*>(dout), static_cast<const float*>(out), delta, heads, head_dim, row_stride,
              begin, end);
  }
}

template <Bf16Products products>
void attention_backward_begin(const AttentionBackward& task) {
  task.bf16 ? run_begin<typename Bf16StepOf<products>::Step>(task) : run_begin<F32Step<float>>(task);
}

template <Bf16Products products>
void attention_backward_queries(const AttentionBackward& task, const AttentionQueries& queries) {
  task.bf16 ? run_queries<typename Bf16StepOf<products>::Step>(task, queries)
            : run_queries<F32Step<float>>(task, queries);
}

template <Bf16Products products>
void attention_backward_end(const AttentionBackward& task) {
  task.bf16 ? run_end<typename Bf16StepOf<products>::Step>(task) : run_end<F32Step<float>>(task);
}

template void attention_backward_begin<Bf16Products::of_level>(const AttentionBackward&);
template void attention_backward_queries<Bf16Products::of_level>(const AttentionBackward&, const AttentionQueries&);
template void attention_backward_end<Bf16Products::of_level>(const AttentionBackward&);
#if defined(INGOT_SIMD_avx512) && !defined(INGOT_SIMD_amx)
template void attention_backward_begin<Bf16Products::fma>(const AttentionBackward&);
template void attention_backward_queries<Bf16Products::fma>(const AttentionBackward&, const AttentionQueries&);
template void attention_backward_end<Bf16Products::fma>(const AttentionBackward&);
#endif

}  // namespace ingot::cpu::INGOT_SIMD_LEVEL
