// Forward attention with an online softmax (Dao 2023, arXiv 2307.08691): for a block of rows, block after block of keys
// from key 0. bf16 operands are multiplied in bf16 dot products where the machine has them (probabilities are then
// rounded to bf16), else as f32.
#include "backend/cpu/simd/attention.h"

#include "backend/cpu/simd/attention_tile.h"
#include "backend/cpu/simd/simd.h"

namespace ingot::cpu::INGOT_SIMD_LEVEL {
namespace {

// The state of a call, all in the scratch.
struct Block {
  float* q;       // operand A of the rows [R, width]
  float* keys;    // panel [words, kBlock]
  float* values;  // panel [kBlock / pack, width]
  float* scores;  // [R, kBlock], then the probabilities as operand A
  float* out;     // [R, width], not yet divided by `sum`
  float* top;     // [kRows]: largest score so far
  float* sum;     // [kRows]: of exp(score - top)
  float* next;    // [kRows]: largest score, this block included
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
  block.next = take(kRows);
  block.width = width;
  return block;
}

// Scales the scores of a block of `columns` keys (a multiple of kAlign) from key `begin`, hides what a row may not see,
// turns them into probabilities as operand A and brings the sums up to date.
template <class Step>
void soften(const AttentionForward& task, const Block& block, int64_t rows, int64_t begin, int64_t columns) {
  const Floats scale = splat(task.scale);
  const Floats nothing = splat(-__builtin_inff());
  Ints lane;
  for (int i = 0; i < lanes; ++i) lane[i] = i;
  for (int64_t r = 0, query = 0; r < rows; ++r, query = query + 1 < task.queries ? query + 1 : 0) {
    float* scores = block.scores + r * kBlock;
    const int64_t seen = task.first + query + 1 - begin;
    Floats top = splat(block.top[r]);
    if (seen >= columns) {
      for (int64_t j = 0; j < columns; j += lanes) {
        const Floats score = load(scores + j, Whole{}) * scale;
        store(scores + j, score, Whole{});
        top = max(top, score);
      }
    } else {
      for (int64_t j = 0; j < columns; j += lanes) {
        const Ints hidden = lane + static_cast<int32_t>(j) >= static_cast<int32_t>(seen);
        const Floats score = hidden ? nothing : load(scores + j, Whole{}) * scale;
        store(scores + j, score, Whole{});
        top = max(top, score);
      }
    }
    block.next[r] = largest(top);
  }
  for (int64_t r = rows; r < padded(rows); ++r) block.next[r] = block.top[r] = 0;
  for (int64_t r = 0; r < rows; r += lanes) {
    const Floats next = load(block.next + r, Whole{});
    store(block.top + r, exp(load(block.top + r, Whole{}) - next), Whole{});  // what the sums so far shrink by
  }
  for (int64_t r = 0; r < rows; ++r) {
    float* scores = block.scores + r * kBlock;
    const float shrink = block.top[r];
    const Floats next = splat(block.next[r]);
    Floats total{};
    for (int64_t j = 0; j < columns; j += lanes) {
      const Floats p = exp(load(scores + j, Whole{}) - next);
      total = total + p;
      store(scores + j, p, Whole{});
    }
    pack_in_place<Step>(scores, columns);
    block.sum[r] = block.sum[r] * shrink + sum(total);
    block.top[r] = block.next[r];
    if (shrink != 1.0F) {
      float* out = block.out + r * block.width;
      const Floats factor = splat(shrink);
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
    const Rows queries{static_cast<const E*>(task.q) + h * d, task.q_stride, nullptr, 1};
    pack_rows<Step>(block.q + h * task.queries * block.width, block.width, queries, 0, task.queries, d);
  }
  for (int64_t i = 0; i < rows * block.width; ++i) block.out[i] = 0;
  for (int64_t r = 0; r < kRows; ++r) {
    block.top[r] = -__builtin_inff();
    block.sum[r] = 0;
  }
  const Rows keys{task.k, task.kv_stride, task.table, task.page};
  const Rows values{task.v, task.kv_stride, task.table, task.page};
  const int64_t end = task.first + task.queries;
  for (int64_t begin = 0; begin < end; begin += kBlock) {
    const int64_t count = at_most(kBlock, end - begin);
    const int64_t columns = padded(count);
    pack_columns<Step>(block.keys, keys, begin, count, d);
    pack_summed<Step>(block.values, values, begin, count, d);
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
  task.bf16 ? run_forward<Bf16Operands>(task) : run_forward<F32Step<float>>(task);
}

}  // namespace

const AttentionKernels attention_kernels = {forward, attention_delta, attention_backward_dq, attention_backward_dkv};

}  // namespace ingot::cpu::INGOT_SIMD_LEVEL
