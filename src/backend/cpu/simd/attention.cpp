// Forward attention with an online softmax (Dao 2023, arXiv 2307.08691): for a block of rows, iterates over the key
// blocks in order. bf16 operands use bf16 dot products if the machine has them (probabilities are then rounded to
// bf16), else they are widened to f32, as f16 is.
#include "backend/cpu/simd/attention.h"

#include "backend/cpu/simd/attention_tile.h"
#include "backend/cpu/simd/simd.h"

namespace ingot::cpu::INGOT_SIMD_LEVEL {
namespace {

// The state of a call, all in scratch.
struct Block {
  float* q;       // operand A of the rows [R, width]
  float* keys;    // panel [words, kBlock]
  float* values;  // panel [kBlock / pack, width]
  float* scores;  // [R, kBlock], then the probabilities as operand A
  float* out;     // [R, width], before the division by `sum`
  float* max;     // [kRows + lanes]: max score so far, divided by score_unit()
  float* sum;     // [kRows + lanes]: sum of exp(score - max) so far
  int64_t width;  // padded head size
};

// The memory that ops::attention_thread_bytes plans for the panels and the scores of a backward pass.
static_assert(2 * kRows + 2 * kBlock <= 10 * kBlock && kRows * kBlock <= 3 * kBlock * kBlock &&
              2 * (kRows + lanes) <= 1024);

Block divide_scratch(void* scratch, int64_t head_dim) {
  const int64_t width = padded(head_dim);
  auto* at = static_cast<float*>(scratch);
  const auto allocate = [&at](int64_t count) {
    float* begin = at;
    at += count;
    return begin;
  };
  Block block{};
  block.q = allocate(kRows * width);
  block.keys = allocate(kBlock * width);
  block.values = allocate(kBlock * width);
  block.scores = allocate(kRows * kBlock);
  block.out = allocate(kRows * width);
  block.max = allocate(kRows + lanes);
  block.sum = allocate(kRows + lanes);
  block.width = width;
  return block;
}

// Converts the dot products of a row of a block to scores; `key` is the block's first key.
void apply_score_mod_row(const AttentionScores& score_rule, float* scores, int64_t columns, int64_t head, int64_t query,
                         int64_t key) {
  const float slope = alibi_slope(score_rule, head);
  const Floats indices = lane_indices();
  for (int64_t j = 0; j < columns; j += lanes) {
    const Floats distance = indices + static_cast<float>(key + j - query);
    store(scores + j, apply_score_mod(score_rule, load(scores + j, AllLanes{}), distance, slope).score, AllLanes{});
  }
}

// Some rows of a block of keys, whose queries attend to at most the first `columns` keys (a multiple of kAlign).
struct RowStrip {
  int64_t row, count;   // in the order of Block::q
  int64_t head, query;  // of the first row
  int64_t columns;
};

// The keys of a block that a query attends to: from .. to - 1, counted from the block's first one.
struct KeyRange {
  int64_t from, to;
};

KeyRange keys_of(const AttentionForward& task, int64_t query, int64_t begin, int64_t columns) {
  const int64_t causal_end = task.first + query + 1 - begin;
  const int64_t window_begin = causal_end - task.scores.window;
  const int64_t end = at_most(causal_end, task.end_key - begin);
  return {at_most(window_begin > 0 ? window_begin : 0, columns), at_most(end > 0 ? end : 0, columns)};
}

// Sets the scores of a row outside `keys` to -inf. Returns the maximum of each lane.
Floats mask_row(float* scores, KeyRange keys, int64_t columns) {
  const auto from = static_cast<int32_t>(keys.from), to = static_cast<int32_t>(keys.to);
  const Floats masked = splat(-__builtin_inff());
  Floats lane_max = masked;
  Ints lane;
  for (int i = 0; i < lanes; ++i) lane[i] = i;
  for (int64_t j = 0; j < columns; j += lanes) {
    const Ints key = lane + static_cast<int32_t>(j);
    const Floats score = ((key >= to) | (key < from)) ? masked : load(scores + j, AllLanes{});
    store(scores + j, score, AllLanes{});
    lane_max = max(lane_max, score);
  }
  return lane_max;
}

// Converts the dot products of the rows of `strip` with the keys from `begin` on to scores, divided by score_unit(),
// and -inf where a query does not attend to a key. Sets `lane_max` to the maxima of the lanes of each row.
void score_rows(const AttentionForward& task, const Block& block, RowStrip strip, int64_t begin,
                Floats (&lane_max)[lanes]) {
  for (int64_t i = 0; i < strip.count; ++i) {
    float* scores = block.scores + (strip.row + i) * kBlock;
    const KeyRange keys = keys_of(task, strip.query, begin, strip.columns);
    if (has_score_mod(task.scores) && keys.from < keys.to)
      apply_score_mod_row(task.scores, scores, strip.columns, strip.head, task.first + strip.query, begin);
    lane_max[i] = mask_row(scores, keys, strip.columns);
    if (++strip.query == task.queries) {
      strip.query = 0;
      ++strip.head;
    }
  }
}

// One step of the online softmax for at most `lanes` rows, with the keys from `begin` on: converts dot products to
// probabilities as operand A, updates the running max and sum, and rescales the output. The sums of a row that attends
// to none of the keys keep their bits. `IsPlain`: kBlock keys, which all queries attend to, without a score mod.
template <class Step, bool IsPlain>
void softmax_rows(const AttentionForward& task, const Block& block, const RowStrip& strip, int64_t begin) {
  const int64_t columns = IsPlain ? kBlock : strip.columns;
  const float unit = score_unit(task.scores) * log2_e;
  Floats vectors[lanes];
  for (int64_t i = 0; i < lanes; ++i) vectors[i] = splat(-__builtin_inff());
  if constexpr (IsPlain) {
    for (int64_t i = 0; i < strip.count; ++i) {
      const float* scores = block.scores + (strip.row + i) * kBlock;
      for (int64_t j = 0; j < columns; j += lanes) vectors[i] = max(vectors[i], load(scores + j, AllLanes{}));
    }
  } else {
    score_rows(task, block, strip, begin, vectors);
  }
  const Floats old_max = load(block.max + strip.row, AllLanes{});
  // The lower bound keeps it finite in a row that has attended to no key yet, and also its product with `unit`.
  const Floats new_max = max(max(old_max, reduce_max_rows(vectors)), splat(-1e30F));
  const Floats rescale = exp2((old_max - new_max) * unit);  // of the sums so far
  store(block.max + strip.row, new_max, AllLanes{});
  float offsets[lanes], rescales[lanes];
  store(offsets, Floats{} - new_max * unit, AllLanes{});
  store(rescales, rescale, AllLanes{});
  for (int64_t i = 0; i < lanes; ++i) vectors[i] = Floats{};
  for (int64_t i = 0; i < strip.count; ++i) {
    float* scores = block.scores + (strip.row + i) * kBlock;
    const Floats offset = splat(offsets[i]);
    Floats total{};
    for (int64_t j = 0; j < columns; j += lanes) {
      const Floats p = exp2(fma(load(scores + j, AllLanes{}), splat(unit), offset));
      total = total + p;
      store_as_a<Step>(scores, j, p);
    }
    vectors[i] = total;
  }
  store(block.sum + strip.row, load(block.sum + strip.row, AllLanes{}) * rescale + reduce_add_rows(vectors),
        AllLanes{});
  for (int64_t i = 0; i < strip.count; ++i) {
    if (rescales[i] == 1.0F) continue;
    float* out = block.out + (strip.row + i) * block.width;
    const Floats factor = splat(rescales[i]);
    for (int64_t j = 0; j < block.width; j += lanes) store(out + j, load(out + j, AllLanes{}) * factor, AllLanes{});
  }
}

// The rows of `strip` with the packed block of `columns` keys from `begin` on.
template <class Step>
void attend(const AttentionForward& task, const Block& block, const RowStrip& strip, int64_t begin) {
  float* scores = block.scores + strip.row * kBlock;
  product<Step>(scores, kBlock, block.q + strip.row * block.width, block.width, block.keys, kBlock, strip.count,
                strip.columns, num_words<Step>(task.head_dim), false);
  // The last query's window begins last, the first query's causal end is first.
  const bool is_plain = strip.columns == kBlock && !has_score_mod(task.scores) &&
                        keys_of(task, 0, begin, kBlock).to == kBlock &&
                        keys_of(task, task.queries - 1, begin, kBlock).from == 0;
  int64_t head = strip.head, query = strip.query;
  for (int64_t i = 0; i < strip.count; i += lanes) {
    const RowStrip rows{strip.row + i, at_most(lanes, strip.count - i), head, query, strip.columns};
    is_plain ? softmax_rows<Step, true>(task, block, rows, begin) : softmax_rows<Step, false>(task, block, rows, begin);
    query += lanes;
    for (; query >= task.queries; query -= task.queries) ++head;
  }
  product<Step>(block.out + strip.row * block.width, block.width, scores, kBlock, block.values, block.width,
                strip.count, block.width, num_words<Step>(strip.columns), true);
}

// Calls body(strip) for all rows of the heads from `head` on that share a key/value head, with its block of `count`
// keys from `begin` on. Where queries do not attend to the last of these keys, strips of kAlign queries leave out what
// none of them attends to: the products with zeros that are saved change no sum.
template <class Body>
void for_each_strip(const AttentionForward& task, int64_t head, int64_t begin, int64_t count, Body body) {
  const int64_t heads = task.heads / task.kv_heads;
  const int64_t keys = task.first + 1 - begin;  // that the first query attends to
  if (task.queries <= kAlign || keys >= count)
    return body(RowStrip{head * task.queries, heads * task.queries, head, 0, padded(count)});
  for (int64_t h = head; h < head + heads; ++h) {
    for (int64_t query = 0; query < task.queries; query += kAlign) {
      const int64_t queries = at_most(kAlign, task.queries - query);
      const int64_t attended = at_most(count, keys + query + queries - 1);  // by the last query
      if (attended > 0) body(RowStrip{h * task.queries + query, queries, h, query, padded(attended)});
    }
  }
}

// The state before the first key: of no key; or with `accumulate`, that of a key whose score is lse and whose value is
// out.
void initialize(const AttentionForward& task, const Block& block) {
  const int64_t rows = task.queries * task.heads;
  for (int64_t i = 0; i < rows * block.width; ++i) block.out[i] = 0;
  for (int64_t r = 0; r < kRows + lanes; ++r) {
    block.max[r] = -__builtin_inff();
    block.sum[r] = 0;
  }
  if (!task.accumulate) return;
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t h = r / task.queries, i = r % task.queries;
    const float lse = task.lse[h * task.lse_stride + i];
    if (lse == -__builtin_inff()) continue;
    block.max[r] = lse / score_unit(task.scores);
    block.sum[r] = 1;
    const float* out = static_cast<const float*>(task.out) + i * task.q_stride + h * task.head_dim;
    write_row(block.out + r * block.width, out, 1.0F, task.head_dim);
  }
}

// out, of elements E, and lse. A row that has attended to no key has zeros and -inf.
template <class E>
void write_results(const AttentionForward& task, const Block& block) {
  for (int64_t r = 0; r < task.queries * task.heads; ++r) {
    const int64_t h = r / task.queries, i = r % task.queries;
    const float factor = block.sum[r] == 0 ? 0.0F : 1.0F / block.sum[r];
    write_row(static_cast<E*>(task.out) + i * task.q_stride + h * task.head_dim, block.out + r * block.width, factor,
              task.head_dim);
    if (task.lse != nullptr) {
      task.lse[h * task.lse_stride + i] = block.max[r] * score_unit(task.scores) + __builtin_logf(block.sum[r]);
    }
  }
}

template <class Step>
void run_forward(const AttentionForward& task) {
  using E = typename Step::Element;
  const int64_t d = task.head_dim;
  const Block block = divide_scratch(task.scratch, d);
  for (int64_t h = 0; h < task.heads; ++h) {
    const Rows<E> queries{static_cast<const E*>(task.q) + h * d, task.q_stride, nullptr, 1};
    pack_a<Step>(block.q + h * task.queries * block.width, block.width, queries.list(0, task.queries), d);
  }
  initialize(task, block);
  const Rows<E> keys{static_cast<const E*>(task.k), task.kv_stride, task.table, task.page};
  const Rows<E> values{static_cast<const E*>(task.v), task.kv_stride, task.table, task.page};
  const int64_t end = at_most(task.first + task.queries, task.end_key);
  const int64_t first = first_block(task.scores, task.first, task.first_key);
  for (int64_t begin = first; begin < end; begin += kBlock) {
    const int64_t count = at_most(kBlock, end - begin);
    RowList<E> key_rows = keys.list(begin - task.first_key, count);
    RowList<E> value_rows = values.list(begin - task.first_key, count);
    touch_rows(key_rows, d * task.kv_heads);
    touch_rows(value_rows, d * task.kv_heads);
    for (int64_t kv_head = 0; kv_head < task.kv_heads; ++kv_head) {
      pack_b_transposed<Step>(block.keys, key_rows, d);
      pack_b<Step>(block.values, value_rows, d);
      for_each_strip(task, kv_head * task.heads / task.kv_heads, begin, count,
                     [&](const RowStrip& strip) { attend<Step>(task, block, strip, begin); });
      key_rows.advance(d);
      value_rows.advance(d);
    }
  }
  task.is_partial ? write_results<float>(task, block) : write_results<E>(task, block);
}

template <Bf16Products products>
void forward(const AttentionForward& task) {
  switch (task.type) {
    case ElementType::f32: return run_forward<F32Step<float>>(task);
    case ElementType::bf16: return run_forward<typename Bf16StepOf<products>::Step>(task);
    case ElementType::f16: return run_forward<F32Step<F16>>(task);
  }
}

template <Bf16Products products>
constexpr AttentionKernels kernels = {forward<products>, attention_delta, attention_backward_begin<products>,
                                      attention_backward_queries<products>, attention_backward_end<products>};

}  // namespace

const AttentionKernels attention_kernels = kernels<Bf16Products::of_level>;
#if defined(INGOT_SIMD_avx512) && !defined(INGOT_SIMD_amx)
const AttentionKernels attention_fma_kernels = kernels<Bf16Products::fma>;
#endif

}  // namespace ingot::cpu::INGOT_SIMD_LEVEL
