// Backward attention (Dao 2023, arXiv 2307.08691): probabilities again from the scores and lse, dq in one loop and
// dk, dv in another, so that every gradient has one owner and one order of summing.
//   P = exp(score(scale q k) - lse), dP = dout v, dS = P (dP - delta) score', dv = P^T dout, dq = scale dS k,
//   dk = scale dS^T q; score is the identity unless there is a softcap or a slope.
#include "backend/cpu/simd/attention_tile.h"

namespace ingot::cpu::INGOT_SIMD_LEVEL {
namespace {

class Divider {
 public:
  explicit Divider(void* scratch) : at_(static_cast<float*>(scratch)) {}
  float* take(int64_t count) {
    float* taken = at_;
    at_ += count;
    return taken;
  }

 private:
  float* at_;
};

void clear(float* x, int64_t count) {
  for (int64_t i = 0; i < count; ++i) x[i] = 0;
}

template <class E>
Rows head_rows(const void* base, int64_t head, int64_t head_dim, int64_t stride) {
  return {static_cast<const E*>(base) + head * head_dim, stride, nullptr, 1};
}

template <class Step>
void run_dq(const AttentionBackward& task) {
  using E = typename Step::Element;
  const int64_t d = task.head_dim;
  const int64_t width = padded(d);
  const int64_t queries = task.end - task.begin;
  const int64_t rows = queries * task.heads;
  Divider divider(task.scratch);
  float* q = divider.take(kRows * width);
  float* dout = divider.take(kRows * width);
  float* dq = divider.take(kRows * width);
  float* keys = divider.take(kBlock * width);
  float* values = divider.take(kBlock * width);
  float* summed_keys = divider.take(kBlock * width);
  float* scores = divider.take(kRows * kBlock);
  float* slopes = divider.take(kRows * kBlock);
  for (int64_t h = 0; h < task.heads; ++h) {
    const int64_t at = h * queries * width;
    pack_rows<Step>(q + at, width, head_rows<E>(task.q, h, d, task.q_stride), task.begin, queries, d);
    pack_rows<Step>(dout + at, width, head_rows<E>(task.dout, h, d, task.q_stride), task.begin, queries, d);
  }
  clear(dq, rows * width);
  const Rows k{task.k, task.kv_stride, nullptr, 1};
  const Rows v{task.v, task.kv_stride, nullptr, 1};
  const Floats scale = splat(task.scores.scale);
  const bool bent = bends(task.scores);
  const Floats numbers = lane_numbers();
  for (int64_t begin = first_block(task.scores, task.begin); begin < task.end; begin += kBlock) {
    const int64_t count = at_most(kBlock, task.end - begin);
    const int64_t columns = padded(count);
    pack_columns<Step>(keys, k, begin, count, d);
    pack_columns<Step>(values, v, begin, count, d);
    pack_summed<Step>(summed_keys, k, begin, count, d);
    product<Step>(scores, kBlock, q, width, keys, kBlock, rows, columns, num_words<Step>(d), false);
    product<Step>(slopes, kBlock, dout, width, values, kBlock, rows, columns, num_words<Step>(d), false);
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t query = task.begin + r % queries;
      const int64_t at = r / queries * task.row_stride + query;
      const Floats lse = splat(task.lse[at]);
      const Floats delta = splat(task.delta[at]);
      float* slope = slopes + r * kBlock;
      if (bent) {
        const float rate = rate_of(task.scores, r / queries);
        for (int64_t j = 0; j < columns; j += lanes) {
          const Floats distance = numbers + static_cast<float>(begin + j - query);
          const Bent score = bend(task.scores, load(scores + r * kBlock + j, Whole{}), distance, rate);
          const Floats p = exp_or_zero(score.score - lse);
          store(slope + j, p * (load(slope + j, Whole{}) - delta) * score.slope, Whole{});
        }
      } else {
        for (int64_t j = 0; j < columns; j += lanes) {
          const Floats p = exp(fma(load(scores + r * kBlock + j, Whole{}), scale, Floats{} - lse));
          store(slope + j, p * (load(slope + j, Whole{}) - delta), Whole{});
        }
      }
      const int64_t seen = query + 1 - begin;
      for (int64_t j = seen > 0 ? seen : 0; j < columns; ++j) slope[j] = 0;
      const int64_t gone = at_most(seen - task.scores.window, columns);  // keys that the window has left behind
      for (int64_t j = 0; j < gone; ++j) slope[j] = 0;
      pack_in_place<Step>(slope, columns);
    }
    product<Step>(dq, width, slopes, kBlock, summed_keys, width, rows, width, num_words<Step>(columns), true);
  }
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t query = task.begin + r % queries;
    write_row(static_cast<E*>(task.dq) + query * task.q_stride + r / queries * d, dq + r * width, task.scores.scale, d);
  }
}

template <class Step>
void run_dkv(const AttentionBackward& task) {
  using E = typename Step::Element;
  const int64_t d = task.head_dim;
  const int64_t width = padded(d);
  const int64_t rows = task.end - task.begin;
  Divider divider(task.scratch);
  float* keys = divider.take(kBlock * width);
  float* values = divider.take(kBlock * width);
  float* dk = divider.take(kBlock * width);
  float* dv = divider.take(kBlock * width);
  float* q = divider.take(kBlock * width);
  float* dout = divider.take(kBlock * width);
  float* summed_q = divider.take(kBlock * width);
  float* summed_dout = divider.take(kBlock * width);
  float* scores = divider.take(kBlock * kBlock);  // [key, query], then P as operand A
  float* slopes = divider.take(kBlock * kBlock);  // [key, query], then dS as operand A
  float* lse = divider.take(kBlock);
  float* delta = divider.take(kBlock);
  const Rows k{task.k, task.kv_stride, nullptr, 1};
  const Rows v{task.v, task.kv_stride, nullptr, 1};
  pack_rows<Step>(keys, width, k, task.begin, rows, d);
  pack_rows<Step>(values, width, v, task.begin, rows, d);
  clear(dk, rows * width);
  clear(dv, rows * width);
  const Floats scale = splat(task.scores.scale);
  const bool bent = bends(task.scores);
  const Floats numbers = lane_numbers();
  const int64_t last = at_most(task.length, task.end - 1 + task.scores.window);  // one past the last query that sees
  for (int64_t h = 0; h < task.heads; ++h) {
    const Rows q_rows = head_rows<E>(task.q, h, d, task.q_stride);
    const Rows dout_rows = head_rows<E>(task.dout, h, d, task.q_stride);
    for (int64_t begin = task.begin; begin < last; begin += kBlock) {
      const int64_t count = at_most(kBlock, task.length - begin);
      const int64_t columns = padded(count);
      pack_columns<Step>(q, q_rows, begin, count, d);
      pack_columns<Step>(dout, dout_rows, begin, count, d);
      pack_summed<Step>(summed_q, q_rows, begin, count, d);
      pack_summed<Step>(summed_dout, dout_rows, begin, count, d);
      for (int64_t j = 0; j < columns; ++j) {
        const int64_t at = h * task.row_stride + begin + j;
        lse[j] = j < count ? task.lse[at] : 0;
        delta[j] = j < count ? task.delta[at] : 0;
      }
      product<Step>(scores, kBlock, keys, width, q, kBlock, rows, columns, num_words<Step>(d), false);
      product<Step>(slopes, kBlock, values, width, dout, kBlock, rows, columns, num_words<Step>(d), false);
      for (int64_t r = 0; r < rows; ++r) {
        float* p_row = scores + r * kBlock;
        float* slope = slopes + r * kBlock;
        const int64_t hidden = task.begin + r - begin;  // queries before this key do not see it
        if (bent) {
          const float rate = rate_of(task.scores, h);
          for (int64_t j = 0; j < columns; j += lanes) {
            const Floats distance = static_cast<float>(hidden - j) - numbers;
            const Bent score = bend(task.scores, load(p_row + j, Whole{}), distance, rate);
            const Floats p = exp_or_zero(score.score - load(lse + j, Whole{}));
            store(p_row + j, p, Whole{});
            store(slope + j, p * (load(slope + j, Whole{}) - load(delta + j, Whole{})) * score.slope, Whole{});
          }
        } else {
          for (int64_t j = 0; j < columns; j += lanes) {
            const Floats p = exp(fma(load(p_row + j, Whole{}), scale, Floats{} - load(lse + j, Whole{})));
            store(p_row + j, p, Whole{});
            store(slope + j, p * (load(slope + j, Whole{}) - load(delta + j, Whole{})), Whole{});
          }
        }
        for (int64_t j = 0; j < hidden; ++j) p_row[j] = slope[j] = 0;
        const int64_t shown = at_most(count, hidden + task.scores.window);
        for (int64_t j = shown > 0 ? shown : 0; j < columns; ++j) p_row[j] = slope[j] = 0;
        pack_in_place<Step>(p_row, columns);
        pack_in_place<Step>(slope, columns);
      }
      const int64_t depth = num_words<Step>(columns);
      product<Step>(dv, width, scores, kBlock, summed_dout, width, rows, width, depth, true);
      product<Step>(dk, width, slopes, kBlock, summed_q, width, rows, width, depth, true);
    }
  }
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t at = (task.begin + r) * task.kv_stride;
    write_row(static_cast<E*>(task.dk) + at, dk + r * width, task.scores.scale, d);
    write_row(static_cast<E*>(task.dv) + at, dv + r * width, 1.0F, d);
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

void attention_backward_dq(const AttentionBackward& task) {
  task.bf16 ? run_dq<Bf16Operands>(task) : run_dq<F32Step<float>>(task);
}

void attention_backward_dkv(const AttentionBackward& task) {
  task.bf16 ? run_dkv<Bf16Operands>(task) : run_dkv<F32Step<float>>(task);
}

}  // namespace ingot::cpu::INGOT_SIMD_LEVEL
