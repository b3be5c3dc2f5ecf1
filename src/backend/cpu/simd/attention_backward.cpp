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
  float* keys;             // operand A of the keys
  float* values;           // operand A of the values
  float* transposed_keys;  // [width, kBlock]: operand A of k^T
  float* dk;
  float* dv;
  float* q;     // operand B of the queries, [words, kBlock]
  float* dout;  // like q
  float* summed_q;
  float* summed_dout;
  float* dq;      // [width, kBlock]: dq^T of queries that attend to this block alone
  float* scores;  // [kBlock, kBlock]: [key, query]; then P as operand A
  float* slopes;  // [kBlock, kBlock]: dP [key, query]; then dS as operand A
  float* pairs;   // [kBlock / pack, kBlock]: dS as operand B
  float* lse;     // [kBlock]
  float* delta;   // [kBlock]
  int64_t width;
};

Panels divide(const AttentionBackward& task) {
  Panels panels{};
  panels.width = padded(task.head_dim);
  auto* at = static_cast<float*>(task.scratch);
  const auto take = [&at](int64_t count) {
    float* taken = at;
    at += count;
    return taken;
  };
  const int64_t panel = kBlock * panels.width;
  panels.keys = take(panel);
  panels.values = take(panel);
  panels.transposed_keys = take(panel);
  panels.dk = take(panel);
  panels.dv = take(panel);
  panels.q = take(panel);
  panels.dout = take(panel);
  panels.summed_q = take(panel);
  panels.summed_dout = take(panel);
  panels.dq = take(panel);
  panels.scores = take(kBlock * kBlock);
  panels.slopes = take(kBlock * kBlock);
  panels.pairs = take(kBlock * kBlock);
  panels.lse = take(kBlock);
  panels.delta = take(kBlock);
  return panels;
}

template <class E>
Rows<E> head_rows(const void* base, int64_t head, int64_t head_dim, int64_t stride) {
  return {static_cast<const E*>(base) + head * head_dim, stride, nullptr, 1};
}

template <class Step>
void run_begin(const AttentionBackward& task) {
  const Panels panels = divide(task);
  const int64_t d = task.head_dim;
  const int64_t rows = task.end - task.begin;
  using E = typename Step::Element;
  const RowList<E> k = head_rows<E>(task.k, 0, d, task.kv_stride).list(task.begin, rows);
  const RowList<E> v = head_rows<E>(task.v, 0, d, task.kv_stride).list(task.begin, rows);
  pack_rows<Step>(panels.keys, panels.width, k, d);
  pack_rows<Step>(panels.values, panels.width, v, d);
  pack_summed<Step>(panels.q, k, d);
  turn(panels.transposed_keys, kBlock, panels.q, panels.width, num_words<Step>(padded(rows)), d);
  for (int64_t i = 0; i < rows * panels.width; ++i) panels.dk[i] = panels.dv[i] = 0;
}

// A block of scores [key, query].
struct Field {
  int64_t rows;      // keys
  int64_t columns;   // queries, padded
  int64_t shown;     // queries that exist (without the padding)
  int64_t hidden;    // first query that attends to key 0 of the block; may be negative
  bool on_diagonal;  // keys and queries are the same tokens: no query attends to later keys
};

// Calls body(first key, keys, first query) for strips of keys that have gemms of their own. On the diagonal, the
// queries before a strip attend to none of its keys and are left out: their products would be with zeros, which change
// no finite sum.
template <class Body>
void each_strip(const Field& field, Body body) {
  const int64_t step = field.on_diagonal ? kAlign : kBlock;
  for (int64_t i = 0; i < field.rows; i += step) body(i, at_most(step, field.rows - i), i);
}

// Converts scores and dP to P and dS. `Bends`: see bends(); `Edge`: some query does not attend to some key.
template <class Step, bool Bends, bool Edge>
void soften(const AttentionScores& rule, const Panels& panels, const Field& field, float rate) {
  constexpr int pack = static_cast<int>(Step::pack);
  const Floats scale = splat(rule.scale);
  const Floats numbers = lane_numbers();
  Ints lane;
  for (int i = 0; i < lanes; ++i) lane[i] = i;
  for (int64_t r = 0; r < field.rows; r += pack) {
    // On the diagonal, dq reads strips of kStrip keys and queries, so their elements that no gemm assigned become 0
    // too.
    for (int64_t j = field.on_diagonal ? r / kStrip * kStrip : 0; j < field.columns; j += lanes) {
      const Floats lse = load(panels.lse + j, Whole{});
      const Floats delta = load(panels.delta + j, Whole{});
      Floats slopes[pack];
      for (int i = 0; i < pack; ++i) {
        const int64_t at = (r + i) * kBlock + j;
        const int64_t hidden = field.hidden + r + i;
        Floats p = load(panels.scores + at, Whole{});
        Floats slope = load(panels.slopes + at, Whole{});
        if constexpr (Bends) {
          const Bent score = bend(rule, p, static_cast<float>(hidden - j) - numbers, rate);
          p = exp_or_zero(score.score - lse);
          slope = p * (slope - delta) * score.slope;
        } else {
          p = exp(fma(p, scale, Floats{} - lse));
          slope = p * (slope - delta);
        }
        if constexpr (Edge) {
          const int64_t shown = r + i < field.rows ? at_most(field.shown, hidden + rule.window) : 0;
          const Ints query = lane + static_cast<int32_t>(j);
          const Ints unseen = (query < static_cast<int32_t>(hidden)) | (query >= static_cast<int32_t>(shown));
          p = unseen ? Floats{} : p;
          slope = unseen ? Floats{} : slope;
        }
        put_operand<Step>(panels.scores + (r + i) * kBlock, j, p);
        put_operand<Step>(panels.slopes + (r + i) * kBlock, j, slope);
        slopes[i] = slope;
      }
#if defined(INGOT_SIMD_avx512)
      if constexpr (pack == 2) put_pairs(panels.pairs + r / 2 * kBlock + j, slopes[0], slopes[1]);
#endif
    }
  }
}

template <class Step>
void run_queries(const AttentionBackward& task, const AttentionQueries& queries) {
  using E = typename Step::Element;
  const Panels panels = divide(task);
  const int64_t d = task.head_dim;
  const int64_t width = panels.width;
  const int64_t rows = task.end - task.begin;
  const int64_t count = at_most(kBlock, task.length - queries.begin);
  const Rows<E> all_q = head_rows<E>(task.q, queries.head, d, task.q_stride);
  const Rows<E> all_dout = head_rows<E>(task.dout, queries.head, d, task.q_stride);
  const RowList<E> q = all_q.list(queries.begin, count);
  const RowList<E> dout = all_dout.list(queries.begin, count);
  const Field field{rows, padded(count), count, task.begin - queries.begin, queries.begin == task.begin};
  pack_columns<Step>(panels.q, q, d);
  pack_columns<Step>(panels.dout, dout, d);
  pack_summed<Step>(panels.summed_q, q, d);
  pack_summed<Step>(panels.summed_dout, dout, d);
  for (int64_t j = 0; j < field.columns; ++j) {
    const int64_t at = queries.head * task.row_stride + queries.begin + j;
    panels.lse[j] = j < count ? task.lse[at] : 0;
    panels.delta[j] = j < count ? task.delta[at] : 0;
  }
  const int64_t next = queries.begin + count;
  ask(all_q.list(next, at_most(kBlock, task.length - next)), d);
  ask(all_dout.list(next, at_most(kBlock, task.length - next)), d);
  each_strip(field, [&](int64_t row, int64_t keys, int64_t from) {
    const int64_t at = row * kBlock + from;
    const int64_t columns = field.columns - from;
    product<Step>(panels.scores + at, kBlock, panels.keys + row * width, width, panels.q + from, kBlock, keys, columns,
                  num_words<Step>(d), false);
    product<Step>(panels.slopes + at, kBlock, panels.values + row * width, width, panels.dout + from, kBlock, keys,
                  columns, num_words<Step>(d), false);
  });
  const bool whole = !field.on_diagonal && field.hidden + task.scores.window >= field.columns && count == field.columns;
  const float rate = rate_of(task.scores, queries.head);
  if (has_score_mod(task.scores)) {
    whole ? soften<Step, true, false>(task.scores, panels, field, rate)
          : soften<Step, true, true>(task.scores, panels, field, rate);
  } else {
    whole ? soften<Step, false, false>(task.scores, panels, field, rate)
          : soften<Step, false, true>(task.scores, panels, field, rate);
  }
  each_strip(field, [&](int64_t row, int64_t keys, int64_t from) {
    const int64_t word = from / Step::pack;
    const int64_t at = row * kBlock + word;
    const int64_t depth = num_words<Step>(field.columns - from);
    product<Step>(panels.dv + row * width, width, panels.scores + at, kBlock, panels.summed_dout + word * width, width,
                  keys, width, depth, true);
    product<Step>(panels.dk + row * width, width, panels.slopes + at, kBlock, panels.summed_q + word * width, width,
                  keys, width, depth, true);
  });
  const float* pairs = Step::pack == 1 ? panels.slopes : panels.pairs;
  float* sums = queries.first && field.on_diagonal ? panels.dq : queries.sums;
  const int64_t step = field.on_diagonal ? kStrip : kBlock;
  for (int64_t j = 0; j < field.columns; j += step) {
    const int64_t keys = field.on_diagonal ? at_most(rows, j + step) : rows;
    product<Step>(sums + j, kBlock, panels.transposed_keys, kBlock, pairs + j, kBlock, d,
                  at_most(step, field.columns - j), num_words<Step>(keys), !queries.first);
  }
  if (!field.on_diagonal) return;
  turn(panels.q, width, sums, kBlock, d, count);
  for (int64_t r = 0; r < count; ++r) {
    E* dq = static_cast<E*>(task.dq) + (queries.begin + r) * task.q_stride + queries.head * d;
    write_row(dq, panels.q + r * width, task.scores.scale, d);
  }
}

template <class Step>
void run_end(const AttentionBackward& task) {
  using E = typename Step::Element;
  const Panels panels = divide(task);
  for (int64_t r = 0; r < task.end - task.begin; ++r) {
    const int64_t at = (task.begin + r) * task.kv_stride;
    write_row(static_cast<E*>(task.dk) + at, panels.dk + r * panels.width, task.scores.scale, task.head_dim);
    write_row(static_cast<E*>(task.dv) + at, panels.dv + r * panels.width, 1.0F, task.head_dim);
  }
}

template <class E>
void run_delta(const E* dout, const E* out, float* delta, int64_t heads, int64_t head_dim, int64_t row_stride,
               int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t at = (t * heads + h) * head_dim;
      Floats terms{};
      sweep(0, head_dim, [&](int64_t j, auto extent) {
        terms = fma(load(dout + at + j, extent), load(out + at + j, extent), terms);
      });
      delta[h * row_stride + t] = sum(terms);
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

void attention_backward_begin(const AttentionBackward& task) {
  task.bf16 ? run_begin<Bf16Operands>(task) : run_begin<F32Step<float>>(task);
}

void attention_backward_queries(const AttentionBackward& task, const AttentionQueries& queries) {
  task.bf16 ? run_queries<Bf16Operands>(task, queries) : run_queries<F32Step<float>>(task, queries);
}

void attention_backward_end(const AttentionBackward& task) {
  task.bf16 ? run_end<Bf16Operands>(task) : run_end<F32Step<float>>(task);
}

}  // namespace ingot::cpu::INGOT_SIMD_LEVEL
