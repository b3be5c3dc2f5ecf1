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
  float* top;     // [kRows]: max score so far
  float* sum;     // [kRows]: of exp(score - top)
  int64_t width;  // padded head size
};

Block divide(void* scratch, int64_t head_dim) {
  const int64_t width = padded(head_dim);
  auto* at = static_cast<float*>(scratch);
  const auto take = [&at](int64_t count) {
    float* taken = at;
    at += count;
    return taken;
  };
  Block block{};
  block.q = take(kRows * width);
  block.keys = take(kBlock * width);
  block.values = take(kBlock * width);
  block.scores = take(kRows * kBlock);
  block.out = take(kRows * width);
  block.top = take(kRows);
  block.sum = take(kRows);
  block.width = width;
  return block;
}

// Converts the dot products of a row of a block to scores; `key` is the block's first key.
void bend_row(const AttentionScores& rule, float* scores, int64_t columns, int64_t head, int64_t query, int64_t key) {
  const float rate = rate_of(rule, head);
  const Floats numbers = lane_numbers();
  for (int64_t j = 0; j < columns; j += lanes) {
    const Floats distance = numbers + static_cast<float>(key + j - query);
    store(scores + j, bend(rule, load(scores + j, Whole{}), distance, rate).score, Whole{});
  }
}

// Converts the dot products of row `r` with a block of `columns` keys from key `begin` on to scores, -inf where `query`
// of `head` does not attend to the key. Returns the max of every lane.
Floats score_row(const AttentionForward& task, const Block& block, int64_t r, int64_t head, int64_t query,
                 int64_t begin, int64_t columns) {
  const bool bent = has_score_mod(task.scores);
  const Floats scale = splat(bent ? 1.0F : task.scores.scale);
  const Floats nothing = splat(-__builtin_inff());
  float* scores = block.scores + r * kBlock;
  const int64_t place = task.first + query;
  const int64_t seen = place + 1 - begin;                       // keys of the block up to the query's position
  const int64_t gone = place + 1 - task.scores.window - begin;  // keys of the block that are before the window
  if (bent && seen > 0 && gone < columns) bend_row(task.scores, scores, columns, head, place, begin);
  Floats top = nothing;
  if (seen >= columns && gone <= 0) {
    for (int64_t j = 0; j < columns; j += lanes) {
      const Floats score = load(scores + j, Whole{}) * scale;
      store(scores + j, score, Whole{});
      top = max(top, score);
    }
    return top;
  }
  const auto from = static_cast<int32_t>(gone > 0 ? at_most(gone, columns) : 0);
  const auto to = static_cast<int32_t>(seen > 0 ? at_most(seen, columns) : 0);
  Ints lane;
  for (int i = 0; i < lanes; ++i) lane[i] = i;
  for (int64_t j = 0; j < columns; j += lanes) {
    const Ints key = lane + static_cast<int32_t>(j);
    const Floats score = ((key >= to) | (key < from)) ? nothing : load(scores + j, Whole{}) * scale;
    store(scores + j, score, Whole{});
    top = max(top, score);
  }
  return top;
}

// Converts the dot products with a block of `columns` keys (a multiple of kAlign) from key `begin` on to scores, masks
// them, computes the probabilities as operand A, and updates the running max and sum. Processes as many rows at a time
// as a vector has lanes. The sums of a row that attends to no key of the block do not change by a bit.
template <class Step>
void soften(const AttentionForward& task, const Block& block, int64_t rows, int64_t begin, int64_t columns) {
  int64_t head = 0;
  int64_t query = 0;
  for (int64_t first = 0; first < rows; first += lanes) {
    const int64_t count = at_most(lanes, rows - first);
    Floats vectors[lanes];
    for (int64_t i = 0; i < lanes; ++i) vectors[i] = splat(-__builtin_inff());
    for (int64_t i = 0; i < count; ++i) {
      vectors[i] = score_row(task, block, first + i, head, query, begin, columns);
      if (++query == task.queries) {
        query = 0;
        ++head;
      }
    }
    const Floats before = load(block.top + first, Whole{});
    // Finite even in a row that has attended to no key yet.
    const Floats top = max(max(before, largest_each(vectors)), splat(-0x1.fffffep127F));
    const Floats shrink = exp(before - top);  // factor that rescales the sums so far
    store(block.top + first, top, Whole{});
    for (int64_t i = 0; i < lanes; ++i) vectors[i] = Floats{};
    for (int64_t i = 0; i < count; ++i) {
      float* scores = block.scores + (first + i) * kBlock;
      const Floats top_of_row = splat(block.top[first + i]);
      Floats total{};
      for (int64_t j = 0; j < columns; j += lanes) {
        const Floats p = exp(load(scores + j, Whole{}) - top_of_row);
        total = total + p;
        put_operand<Step>(scores, j, p);
      }
      vectors[i] = total;
    }
    store(block.sum + first, load(block.sum + first, Whole{}) * shrink + sum_each(vectors), Whole{});
    float shrinks[lanes];
    store(shrinks, shrink, Whole{});
    for (int64_t i = 0; i < count; ++i) {
      if (shrinks[i] == 1.0F) continue;
      float* out = block.out + (first + i) * block.width;
      const Floats factor = splat(shrinks[i]);
      for (int64_t j = 0; j < block.width; j += lanes) store(out + j, load(out + j, Whole{}) * factor, Whole{});
    }
  }
}

template <class Step>
void run_forward(const AttentionForward& task) {
  using E = typename Step::Element;
  const int64_t d = task.head_dim;
  const int64_t rows = task.queries * task.heads;
  const Block block = divide(task.scratch, d);
  for (int64_t h = 0; h < task.heads; ++h) {
    const Rows<E> queries{static_cast<const E*>(task.q) + h * d, task.q_stride, nullptr, 1};
    pack_rows<Step>(block.q + h * task.queries * block.width, block.width, queries.list(0, task.queries), d);
  }
  for (int64_t i = 0; i < rows * block.width; ++i) block.out[i] = 0;
  for (int64_t r = 0; r < kRows; ++r) {
    block.top[r] = -__builtin_inff();
    block.sum[r] = 0;
  }
  const Rows<E> keys{static_cast<const E*>(task.k), task.kv_stride, task.table, task.page};
  const Rows<E> values{static_cast<const E*>(task.v), task.kv_stride, task.table, task.page};
  const int64_t end = task.first + task.queries;
  const int64_t first = first_block(task.scores, task.first);
  RowList<E> key_rows = keys.list(first, at_most(kBlock, end - first));
  ask(key_rows, d);
  for (int64_t begin = first; begin < end; begin += kBlock) {
    const int64_t count = at_most(kBlock, end - begin);
    const int64_t columns = padded(count);
    const RowList<E> value_rows = values.list(begin, count);
    ask(value_rows, d);
    pack_columns<Step>(block.keys, key_rows, d);
    key_rows = keys.list(begin + count, at_most(kBlock, end - begin - count));
    ask(key_rows, d);
    pack_summed<Step>(block.values, value_rows, d);
    product<Step>(block.scores, kBlock, block.q, block.width, block.keys, kBlock, rows, columns, num_words<Step>(d),
                  false);
    soften<Step>(task, block, rows, begin, columns);
    product<Step>(block.out, block.width, block.scores, kBlock, block.values, block.width, rows, block.width,
                  num_words<Step>(columns), true);
  }
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t h = r / task.queries;
    const int64_t i = r % task.queries;
    write_row(static_cast<E*>(task.out) + i * task.q_stride + h * d, block.out + r * block.width, 1.0F / block.sum[r],
              d);
    if (task.lse != nullptr) task.lse[h * task.lse_stride + i] = block.top[r] + __builtin_logf(block.sum[r]);
  }
}

void forward(const AttentionForward& task) {
  switch (task.type) {
    case ElementType::f32: return run_forward<F32Step<float>>(task);
    case ElementType::bf16: return run_forward<Bf16Operands>(task);
    case ElementType::f16: return run_forward<F32Step<F16>>(task);
  }
}

}  // namespace

const AttentionKernels attention_kernels = {forward, attention_delta, attention_backward_begin,
                                            attention_backward_queries, attention_backward_end};

}  // namespace ingot::cpu::INGOT_SIMD_LEVEL
