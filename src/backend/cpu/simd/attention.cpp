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
  float* max;     // [kRows]: max score so far
  float* sum;     // [kRows]: sum of exp(score - max) so far
  int64_t width;  // padded head size
};

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
  block.max = allocate(kRows);
  block.sum = allocate(kRows);
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

// Converts the dot products of row `r` with a block of `columns` keys from key `begin` on to scores, -inf where `query`
// of `head` does not attend to the key. Returns the maximum of each lane.
Floats score_row(const AttentionForward& task, const Block& block, int64_t r, int64_t head, int64_t query,
                 int64_t begin, int64_t columns) {
  const bool has_mod = has_score_mod(task.scores);
  const Floats scale = splat(has_mod ? 1.0F : task.scores.scale);
  const Floats masked = splat(-__builtin_inff());
  float* scores = block.scores + r * kBlock;
  const int64_t position = task.first + query;
  // Keys window_begin .. causal_end - 1, counted from the block's first one, are those that the query attends to.
  const int64_t causal_end = position + 1 - begin;
  const int64_t window_begin = position + 1 - task.scores.window - begin;
  if (has_mod && causal_end > 0 && window_begin < columns)
    apply_score_mod_row(task.scores, scores, columns, head, position, begin);
  Floats lane_max = masked;
  if (causal_end >= columns && window_begin <= 0) {
    for (int64_t j = 0; j < columns; j += lanes) {
      const Floats score = load(scores + j, AllLanes{}) * scale;
      store(scores + j, score, AllLanes{});
      lane_max = max(lane_max, score);
    }
    return lane_max;
  }
  const auto from = static_cast<int32_t>(window_begin > 0 ? at_most(window_begin, columns) : 0);
  const auto to = static_cast<int32_t>(causal_end > 0 ? at_most(causal_end, columns) : 0);
  Ints lane;
  for (int i = 0; i < lanes; ++i) lane[i] = i;
  for (int64_t j = 0; j < columns; j += lanes) {
    const Ints key = lane + static_cast<int32_t>(j);
    const Floats score = ((key >= to) | (key < from)) ? masked : load(scores + j, AllLanes{}) * scale;
    store(scores + j, score, AllLanes{});
    lane_max = max(lane_max, score);
  }
  return lane_max;
}

// One step of the online softmax, for a block of `columns` keys (a multiple of kAlign) from key `begin` on: converts
// dot products to masked scores and those to probabilities as operand A, updates the running max and sum, and rescales
// the output. Processes as many rows at a time as a vector has lanes. The sums of a row that attends to no key of the
// block keep their bits.
template <class Step>
void softmax_block(const AttentionForward& task, const Block& block, int64_t rows, int64_t begin, int64_t columns) {
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
    const Floats old_max = load(block.max + first, AllLanes{});
    // The lower bound keeps it finite in a row that has attended to no key yet.
    const Floats new_max = max(max(old_max, reduce_max_rows(vectors)), splat(-0x1.fffffep127F));
    const Floats rescale = exp(old_max - new_max);  // of the sums so far
    store(block.max + first, new_max, AllLanes{});
    for (int64_t i = 0; i < lanes; ++i) vectors[i] = Floats{};
    for (int64_t i = 0; i < count; ++i) {
      float* scores = block.scores + (first + i) * kBlock;
      const Floats row_max = splat(block.max[first + i]);
      Floats total{};
      for (int64_t j = 0; j < columns; j += lanes) {
        const Floats p = exp(load(scores + j, AllLanes{}) - row_max);
        total = total + p;
        store_as_a<Step>(scores, j, p);
      }
      vectors[i] = total;
    }
    store(block.sum + first, load(block.sum + first, AllLanes{}) * rescale + reduce_add_rows(vectors), AllLanes{});
    float rescales[lanes];
    store(rescales, rescale, AllLanes{});
    for (int64_t i = 0; i < count; ++i) {
      if (rescales[i] == 1.0F) continue;
      float* out = block.out + (first + i) * block.width;
      const Floats factor = splat(rescales[i]);
      for (int64_t j = 0; j < block.width; j += lanes) store(out + j, load(out + j, AllLanes{}) * factor, AllLanes{});
    }
  }
}

template <class Step>
void run_forward(const AttentionForward& task) {
  using E = typename Step::Element;
  const int64_t d = task.head_dim;
  const int64_t rows = task.queries * task.heads;
  const Block block = divide_scratch(task.scratch, d);
  for (int64_t h = 0; h < task.heads; ++h) {
    const Rows<E> queries{static_cast<const E*>(task.q) + h * d, task.q_stride, nullptr, 1};
    pack_a<Step>(block.q + h * task.queries * block.width, block.width, queries.list(0, task.queries), d);
  }
  for (int64_t i = 0; i < rows * block.width; ++i) block.out[i] = 0;
  for (int64_t r = 0; r < kRows; ++r) {
    block.max[r] = -__builtin_inff();
    block.sum[r] = 0;
  }
  const Rows<E> keys{static_cast<const E*>(task.k), task.kv_stride, task.table, task.page};
  const Rows<E> values{static_cast<const E*>(task.v), task.kv_stride, task.table, task.page};
  const int64_t end = task.first + task.queries;
  const int64_t first = first_block(task.scores, task.first);
  RowList<E> key_rows = keys.list(first, at_most(kBlock, end - first));
  prefetch_rows(key_rows, d);
  for (int64_t begin = first; begin < end; begin += kBlock) {
    const int64_t count = at_most(kBlock, end - begin);
    const int64_t columns = padded(count);
    const RowList<E> value_rows = values.list(begin, count);
    prefetch_rows(value_rows, d);
    pack_b_transposed<Step>(block.keys, key_rows, d);
    key_rows = keys.list(begin + count, at_most(kBlock, end - begin - count));
    prefetch_rows(key_rows, d);
    pack_b<Step>(block.values, value_rows, d);
    product<Step>(block.scores, kBlock, block.q, block.width, block.keys, kBlock, rows, columns, num_words<Step>(d),
                  false);
    softmax_block<Step>(task, block, rows, begin, columns);
    product<Step>(block.out, block.width, block.scores, kBlock, block.values, block.width, rows, block.width,
                  num_words<Step>(columns), true);
  }
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t h = r / task.queries;
    const int64_t i = r % task.queries;
    write_row(static_cast<E*>(task.out) + i * task.q_stride + h * d, block.out + r * block.width, 1.0F / block.sum[r],
              d);
    if (task.lse != nullptr) task.lse[h * task.lse_stride + i] = block.max[r] + __builtin_logf(block.sum[r]);
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
