// The next-token loss with adapters on the head, compared with logits, softmax and gradients in double. One chunk of
// the loss contains rows of several adapters and of none.
#include "nn/next_token_loss.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <map>

#include "backend/cpu/cpu_device.h"
#include "base/philox.h"
#include "base/thread_pool.h"
#include "ops/registry.h"
#include "tensor/tolerance.h"

namespace ingot::nn {
namespace {

constexpr int64_t H = 12, V = 10;

// Row-major floats, and the same values in double for the reference.
struct Matrix {
  int64_t rows, columns;
  std::vector<float> values;
  Matrix(int64_t r, int64_t c, float value) : rows(r), columns(c), values(static_cast<size_t>(r * c), value) {}
  static Matrix random(uint64_t seed, int64_t r, int64_t c) {
    Matrix m(r, c, 0);
    RandomStream random(seed, 1);
    for (float& value : m.values) value = static_cast<float>(random.normal());
    return m;
  }
  double at(int64_t r, int64_t c) const { return static_cast<double>(values[static_cast<size_t>(r * columns + c)]); }
  Tensor view(const Device& device) { return {values.data(), DType::f32, Shape{rows, columns}, &device}; }
};

struct Exact {
  int64_t columns;
  std::vector<double> values;
  Exact(int64_t r, int64_t c) : columns(c), values(static_cast<size_t>(r * c)) {}
  double& at(int64_t r, int64_t c) { return values[static_cast<size_t>(r * columns + c)]; }
};

struct LowRank {
  int64_t begin, end;
  Matrix a, b;
  Adapter adapter;
};

class Sums : public GradientAccumulator {
 public:
  explicit Sums(std::vector<Tensor> tensors) : tensors_(std::move(tensors)), seen_(tensors_.size(), false) {}
  Slot open(int trainable, int64_t, int) override {
    const size_t place = static_cast<size_t>(trainable);
    const bool again = seen_[place];
    seen_[place] = true;
    return {tensors_[place], again};
  }
  void close(int, int64_t, int) override {}
  bool has(int trainable) const override { return seen_[static_cast<size_t>(trainable)]; }

 private:
  std::vector<Tensor> tensors_;
  std::vector<bool> seen_;
};

// T tokens, every seventh without a target, with the expected loss and gradients.
class LossCase {
 public:
  LossCase(int64_t tokens, std::vector<std::array<int64_t, 2>> segments, float scale = 1, float softcap = 0)
      : tokens_(tokens),
        normed_(Matrix::random(3, tokens, H)),
        expected_losses_(tokens, 1),
        expected_dnormed_(tokens, H),
        expected_dw_(V, H) {
    cpu::register_ops(registry_);
    RandomStream random(4, 1);
    for (int64_t t = 0; t < tokens; ++t) {
      targets_.push_back(t % 7 == 5 ? -1 : static_cast<int32_t>(random.below(static_cast<uint64_t>(V))));
    }
    head_.linear.weight = weight_of(weight_.view(*device_));
    head_.linear.weight_trainable = 0;
    head_.vocabulary = V;
    head_.scale = scale;
    head_.softcap = softcap;
    for (size_t i = 0; i < segments.size(); ++i) {
      const int64_t rank = 2 + static_cast<int64_t>(i);
      adapters_.push_back(
          {segments[i][0], segments[i][1], Matrix::random(10 + i, rank, H), Matrix::random(20 + i, V, rank), {}});
    }
    for (size_t i = 0; i < adapters_.size(); ++i) {
      LowRank& l = adapters_[i];
      l.adapter.factor = 0.5F + static_cast<float>(i);
      l.adapter.layers = {
          {l.a.view(*device_), l.b.view(*device_), static_cast<int>(1 + 2 * i), static_cast<int>(2 + 2 * i)}};
      expected_da_.emplace_back(l.a.rows, H);
      expected_db_.emplace_back(V, l.a.rows);
    }
    for (int64_t t = 0; t < tokens; ++t) expect_token(t);
  }

  // Runs with these accumulation units in training, and once in inference.
  void check(const std::vector<int64_t>& accumulation_offsets) {
    const size_t bytes =
        NextTokenLoss::bytes({.vocab = V, .hidden = H, .final_softcap = static_cast<double>(head_.softcap)},
                             {.tokens = tokens_, .adapter_rank = 4, .host_visible = true}, true);
    Arena scratch(*device_, bytes, "scratch");
    ops::Context context{*device_, registry_, scratch, &threads_};
    const TokenBatch batch;
    const Tensor targets{targets_.data(), DType::i32, Shape{tokens_}, device_.get()};
    std::vector<AdapterSegment> segments;
    for (const LowRank& l : adapters_) segments.push_back({l.begin, l.end, &l.adapter});

    Matrix evaluated(1, tokens_, 99);
    Pass serving{context, batch, DType::f32, segments};
    NextTokenLoss(evaluated.view(*device_).reshape(Shape{tokens_}), targets)
        .compute(serving, head_, {}, normed_.view(*device_));
    expect_close(evaluated, expected_losses_, "losses without training");

    Matrix losses(1, tokens_, 99), dnormed(tokens_, H, 99), dw(V, H, 99);
    std::vector<Matrix> gradients;
    std::vector<Tensor> tensors = {dw.view(*device_)};
    for (const LowRank& l : adapters_) {
      gradients.emplace_back(l.a.rows, H, 99);
      gradients.emplace_back(V, l.a.rows, 99);
    }
    for (Matrix& gradient : gradients) tensors.push_back(gradient.view(*device_));
    Sums accumulator(std::move(tensors));
    Training training{accumulator, accumulation_offsets, spec::Recompute::none, {}, 0, 1};
    Pass pass{context, batch, DType::f32, segments, nullptr, &training};
    NextTokenLoss(losses.view(*device_).reshape(Shape{tokens_}), targets)
        .compute(pass, head_, dnormed.view(*device_), normed_.view(*device_));
    expect_close(losses, expected_losses_, "losses");
    expect_close(dnormed, expected_dnormed_, "dnormed");
    expect_close(dw, expected_dw_, "dW");
    for (size_t i = 0; i < adapters_.size(); ++i) {
      expect_close(gradients[2 * i], expected_da_[i], "dA");
      expect_close(gradients[2 * i + 1], expected_db_[i], "dB");
    }
    // Equal chunks give equal bits in training and in inference.
    if (accumulation_offsets.size() == 2) EXPECT_EQ(losses.values, evaluated.values);
  }

 private:
  // Adds the contribution of token t to the expected loss and gradients.
  void expect_token(int64_t t) {
    const int32_t target = targets_[static_cast<size_t>(t)];
    const LowRank* adapter = nullptr;
    size_t place = 0;
    for (size_t i = 0; i < adapters_.size(); ++i) {
      if (t >= adapters_[i].begin && t < adapters_[i].end) adapter = &adapters_[place = i];
    }
    const double factor = adapter ? static_cast<double>(adapter->adapter.factor) : 0;
    const int64_t rank = adapter ? adapter->a.rows : 0;
    std::vector<double> low(static_cast<size_t>(rank)), dlow(low.size()), gradient(V), slope(V);
    for (int64_t r = 0; r < rank; ++r) {
      for (int64_t h = 0; h < H; ++h) low[static_cast<size_t>(r)] += factor * adapter->a.at(r, h) * normed_.at(t, h);
    }
    double sum = 0;
    for (int64_t v = 0; v < V; ++v) {
      double logit = 0;
      for (int64_t h = 0; h < H; ++h) logit += weight_.at(v, h) * normed_.at(t, h);
      for (int64_t r = 0; r < rank; ++r) logit += adapter->b.at(v, r) * low[static_cast<size_t>(r)];
      const double scale = static_cast<double>(head_.scale), cap = static_cast<double>(head_.softcap);
      slope[static_cast<size_t>(v)] = scale;
      logit *= scale;
      if (cap > 0) {
        const double share = std::tanh(logit / cap);
        slope[static_cast<size_t>(v)] *= 1 - share * share;
        logit = cap * share;
      }
      gradient[static_cast<size_t>(v)] = std::exp(logit);
      sum += std::exp(logit);
    }
    if (target < 0) return;  // no loss, no gradient
    expected_losses_.at(t, 0) = std::log(sum) - std::log(gradient[static_cast<size_t>(target)]);
    for (int64_t v = 0; v < V; ++v) {
      const double g = slope[static_cast<size_t>(v)] * (gradient[static_cast<size_t>(v)] / sum - (v == target ? 1 : 0));
      for (int64_t h = 0; h < H; ++h) {
        expected_dnormed_.at(t, h) += g * weight_.at(v, h);
        expected_dw_.at(v, h) += g * normed_.at(t, h);
      }
      for (int64_t r = 0; r < rank; ++r) {
        dlow[static_cast<size_t>(r)] += factor * g * adapter->b.at(v, r);
        expected_db_[place].at(v, r) += g * low[static_cast<size_t>(r)];
      }
    }
    for (int64_t r = 0; r < rank; ++r) {
      for (int64_t h = 0; h < H; ++h) {
        expected_dnormed_.at(t, h) += dlow[static_cast<size_t>(r)] * adapter->a.at(r, h);
        expected_da_[place].at(r, h) += dlow[static_cast<size_t>(r)] * normed_.at(t, h);
      }
    }
  }

  void expect_close(const Matrix& found, const Exact& expected, const char* what) const {
    double largest = 0;
    for (double e : expected.values) largest = std::max(largest, std::abs(e));
    ASSERT_GT(largest, 0) << what;
    ASSERT_EQ(found.values.size(), expected.values.size()) << what;
    for (size_t i = 0; i < found.values.size(); ++i) {
      ASSERT_NEAR(static_cast<double>(found.values[i]), expected.values[i],
                  largest * tolerance(DType::f32, tokens_ + H + V))
          << what << " " << i;
    }
  }

  std::unique_ptr<Device> device_ = cpu::make_device();
  ops::Registry registry_;
  ThreadPool threads_{2};
  int64_t tokens_;
  Matrix weight_ = Matrix::random(1, V, H), normed_;
  std::vector<int32_t> targets_;
  std::vector<LowRank> adapters_;
  Head head_;
  Exact expected_losses_, expected_dnormed_, expected_dw_;
  std::vector<Exact> expected_da_, expected_db_;
};

TEST(NextTokenLoss, OneChunkHasRowsOfSeveralAdapters) { LossCase(9, {{0, 4}, {6, 9}}).check({0, 9}); }

TEST(NextTokenLoss, LogitsAreScaledAndCapped) {
  LossCase(9, {{0, 4}, {6, 9}}, 0.5F).check({0, 9});
  LossCase(9, {{0, 4}, {6, 9}}, 1, 3).check({0, 9});
  LossCase(9, {{0, 4}, {6, 9}}, 0.25F, 3).check({0, 5, 9});
}

TEST(NextTokenLoss, AccumulationUnitsMaySplitAdapterRows) { LossCase(9, {{0, 4}, {4, 6}, {7, 9}}).check({0, 3, 8, 9}); }

// A chunk has 1,024 tokens: the second adapter's rows are in both chunks, the third's in the second only.
TEST(NextTokenLoss, ChunksMaySplitAdapterRows) {
  ASSERT_EQ(spec::loss_chunk(V, true), 1024);
  LossCase(1100, {{10, 900}, {901, 1040}, {1050, 1100}}).check({0, 1100});
}

}  // namespace
}  // namespace ingot::nn
