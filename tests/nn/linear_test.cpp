// A linear layer with a bias and adapters, forward and backward, compared with sums in double from the formula y = W x
// + b + f B A x. Batches mix two adapters and rows without one; segments cover some or all rows.
#include "nn/linear.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "backend/cpu/cpu_device.h"
#include "base/half.h"
#include "base/philox.h"
#include "base/thread_pool.h"
#include "nn/deferred_gradients.h"
#include "ops/registry.h"
#include "tensor/tolerance.h"

namespace ingot::nn {
namespace {

constexpr int64_t T = 9, I = 12, O = 10;
using Matrix = std::vector<float>;  // row-major
using Exact = std::vector<double>;

Matrix random_matrix(uint64_t seed, int64_t rows, int64_t columns) {
  RandomStream random(seed, 1);
  Matrix m(static_cast<size_t>(rows * columns));
  for (float& value : m) value = static_cast<float>(random.normal());
  return m;
}

// op(a) [m, k] op(b) [k, n] with strides, in double.
Exact product(const Exact& a, int64_t a_row, int64_t a_column, const Exact& b, int64_t b_row, int64_t b_column,
              int64_t m, int64_t k, int64_t n) {
  Exact c(static_cast<size_t>(m * n), 0.0);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t l = 0; l < k; ++l) {
        c[static_cast<size_t>(i * n + j)] +=
            a[static_cast<size_t>(i * a_row + l * a_column)] * b[static_cast<size_t>(l * b_row + j * b_column)];
      }
    }
  }
  return c;
}

Exact exact(const Matrix& m) { return Exact(m.begin(), m.end()); }
Exact rows(const Exact& m, int64_t begin, int64_t end, int64_t columns) {
  return Exact(m.begin() + begin * columns, m.begin() + end * columns);
}
void add(Exact& to, const Exact& from, int64_t at = 0) {
  for (size_t i = 0; i < from.size(); ++i) to[static_cast<size_t>(at) + i] += from[i];
}

// Accumulates a sum for every trained tensor, and records the accumulation units that contributed to it.
class MapAccumulator : public GradientAccumulator {
 public:
  explicit MapAccumulator(const std::map<int, Tensor>& tensors) : tensors_(tensors) {}
  Slot open(int trainable, int64_t unit, int) override {
    order_[trainable].push_back(unit);
    return {tensors_.at(trainable), order_[trainable].size() > 1};
  }
  void close(int, int64_t, int) override {}
  bool has(int trainable) const override { return order_.contains(trainable); }
  const std::vector<int64_t>& units(int trainable) { return order_[trainable]; }

 private:
  const std::map<int, Tensor>& tensors_;
  std::map<int, std::vector<int64_t>> order_;
};

struct LowRank {
  int64_t rank, begin, end;
  Matrix a, b;
  Adapter adapter;
};

struct Share {
  int64_t rank, begin, end;
};
struct Scenario {
  const char* name;
  std::vector<Share> adapters;
  bool decoded = false;  // the weight is stored in bf16

  int64_t rank() const {
    int64_t most = 0;
    for (const Share& s : adapters) most = std::max(most, s.rank);
    return most;
  }
};

class LinearTest : public testing::TestWithParam<Scenario> {
 protected:
  LinearTest() {
    for (const Share& s : GetParam().adapters) adapters_.push_back({s.rank, s.begin, s.end, {}, {}, {}});
    cpu::register_ops(registry_);
    layer_.weight = weight_of(view(weight_, Shape{O, I}));
    if (GetParam().decoded) {
      for (float& w : weight_) {
        coded_.push_back(float_to_bf16(w));
        w = bf16_to_float(coded_.back());
      }
      layer_.weight = weight_of(Tensor{coded_.data(), DType::bf16, Shape{O, I}, device_.get()});
    }
    layer_.bias = view(bias_, Shape{O});
    layer_.parameter = 1;
    layer_.weight_trainable = 0;
    layer_.bias_trainable = 1;
    for (size_t i = 0; i < adapters_.size(); ++i) {
      LowRank& l = adapters_[i];
      l.a = random_matrix(10 + i, l.rank, I);
      l.b = random_matrix(20 + i, O, l.rank);
      l.adapter.factor = 0.5F + static_cast<float>(i);
      l.adapter.layers.resize(2);  // layer 0 is not adapted; the test's layer is 1
      l.adapter.layers[1] = {view(l.a, Shape{l.rank, I}), view(l.b, Shape{O, l.rank}), static_cast<int>(2 + 2 * i),
                             static_cast<int>(3 + 2 * i)};
    }
  }

  Tensor view(Matrix& m, Shape shape) { return Tensor{m.data(), DType::f32, shape, device_.get()}; }
  std::vector<AdapterSegment> segments() const {
    std::vector<AdapterSegment> all;
    for (const LowRank& l : adapters_) all.push_back({l.begin, l.end, &l.adapter});
    return all;
  }
  static void expect_close(const Matrix& found, const Exact& expected, const char* what) {
    double largest = 0;
    for (double e : expected) largest = std::max(largest, std::abs(e));
    ASSERT_GT(largest, 0) << what;
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_NEAR(static_cast<double>(found[i]), expected[i], largest * tolerance(DType::f32, I + O + T)) << what;
    }
  }

  std::unique_ptr<Device> device_ = cpu::make_device();
  ops::Registry registry_;
  ThreadPool threads_{2};
  Matrix weight_ = random_matrix(1, O, I), bias_ = random_matrix(2, 1, O), x_ = random_matrix(3, T, I),
         dy_ = random_matrix(4, T, O);
  std::vector<LowRank> adapters_;
  Linear layer_;
  std::vector<uint16_t> coded_;
  // Scratch of exactly the size that bytes() returns.
  Arena scratch_{*device_, Linear::bytes(T, O, I, {.adapter_rank = GetParam().rank(), .decoded = GetParam().decoded}),
                 "scratch"};
  ops::Context context_{*device_, registry_, scratch_, &threads_};
  TokenBatch batch_;
};

TEST_P(LinearTest, ForwardAppliesEachRowsAdapter) {
  Exact expected = product(exact(x_), I, 1, exact(weight_), 1, I, T, I, O);
  for (int64_t t = 0; t < T; ++t) {
    for (int64_t o = 0; o < O; ++o)
      expected[static_cast<size_t>(t * O + o)] += static_cast<double>(bias_[static_cast<size_t>(o)]);
  }
  for (const LowRank& l : adapters_) {
    const int64_t n = l.end - l.begin;
    Exact low = product(rows(exact(x_), l.begin, l.end, I), I, 1, exact(l.a), 1, I, n, I, l.rank);
    for (double& value : low) value *= static_cast<double>(l.adapter.factor);
    add(expected, product(low, l.rank, 1, exact(l.b), 1, l.rank, n, l.rank, O), l.begin * O);
  }
  Pass pass{context_, batch_, DType::f32, segments()};
  Matrix y(static_cast<size_t>(T * O), 99.0F);
  layer_.forward(pass, view(y, Shape{T, O}), view(x_, Shape{T, I}));
  expect_close(y, expected, "y");

  Matrix sum = random_matrix(5, T, O);
  add(expected, exact(sum));
  layer_.forward(pass, view(y, Shape{T, O}), view(x_, Shape{T, I}), view(sum, Shape{T, O}));
  expect_close(y, expected, "y with a residual");
  layer_.forward(pass, view(sum, Shape{T, O}), view(x_, Shape{T, I}), view(sum, Shape{T, O}));
  EXPECT_EQ(sum, y);
}

// The accumulation units [0, 3), [3, 7), [7, 9) split the adapters' segments.
TEST_P(LinearTest, BackwardSumsEachAdaptersRows) {
  Exact dx = product(exact(dy_), O, 1, exact(weight_), I, 1, T, O, I);
  const Exact dw = product(exact(dy_), 1, O, exact(x_), I, 1, O, T, I);
  Exact db(static_cast<size_t>(O), 0.0);
  for (int64_t t = 0; t < T; ++t) add(db, rows(exact(dy_), t, t + 1, O));
  std::vector<Exact> da(adapters_.size()), dbb(adapters_.size());
  for (size_t i = 0; i < adapters_.size(); ++i) {
    const LowRank& l = adapters_[i];
    const int64_t n = l.end - l.begin;
    const Exact x = rows(exact(x_), l.begin, l.end, I);
    const Exact dy = rows(exact(dy_), l.begin, l.end, O);
    Exact low = product(x, I, 1, exact(l.a), 1, I, n, I, l.rank);
    Exact dlow = product(dy, O, 1, exact(l.b), l.rank, 1, n, O, l.rank);
    for (double& value : low) value *= static_cast<double>(l.adapter.factor);
    for (double& value : dlow) value *= static_cast<double>(l.adapter.factor);
    dbb[i] = product(dy, 1, O, low, l.rank, 1, O, n, l.rank);
    da[i] = product(dlow, 1, l.rank, x, I, 1, l.rank, n, I);
    add(dx, product(dlow, l.rank, 1, exact(l.a), I, 1, n, l.rank, I), l.begin * I);
  }

  std::vector<Matrix> gradients = {Matrix(static_cast<size_t>(O * I), 99.0F), Matrix(static_cast<size_t>(O), 99.0F)};
  std::vector<Shape> shapes = {Shape{O, I}, Shape{O}};
  for (const LowRank& l : adapters_) {
    gradients.emplace_back(static_cast<size_t>(l.rank * I), 99.0F);
    gradients.emplace_back(static_cast<size_t>(O * l.rank), 99.0F);
    shapes.push_back(Shape{l.rank, I});
    shapes.push_back(Shape{O, l.rank});
  }
  std::map<int, Tensor> tensors;
  for (size_t i = 0; i < shapes.size(); ++i) tensors[static_cast<int>(i)] = view(gradients[i], shapes[i]);
  MapAccumulator accumulator(tensors);
  Training training{accumulator, {0, 3, 7, 9}, spec::Recompute::none, {}, 0, 1};
  Pass pass{context_, batch_, DType::f32, segments(), nullptr, &training};
  Matrix found(static_cast<size_t>(T * I), 99.0F);
  layer_.backward(pass, view(found, Shape{T, I}), view(dy_, Shape{T, O}), view(x_, Shape{T, I}), false);
  expect_close(found, dx, "dx");
  expect_close(gradients[0], dw, "dW");
  expect_close(gradients[1], db, "db");
  EXPECT_EQ(accumulator.units(0), (std::vector<int64_t>{0, 1, 2}));
  for (size_t i = 0; i < adapters_.size(); ++i) {
    SCOPED_TRACE(i);
    expect_close(gradients[2 + 2 * i], da[i], "dA");
    expect_close(gradients[3 + 2 * i], dbb[i], "dB");
    std::vector<int64_t> units;
    if (adapters_[i].begin < 3) units.push_back(0);
    if (adapters_[i].begin < 7 && adapters_[i].end > 3) units.push_back(1);
    if (adapters_[i].end > 7) units.push_back(2);
    EXPECT_EQ(accumulator.units(2 + 2 * static_cast<int>(i)), units);
  }

  Matrix sum = random_matrix(6, T, I);
  add(dx, exact(sum));
  layer_.backward(pass, view(sum, Shape{T, I}), view(dy_, Shape{T, O}), view(x_, Shape{T, I}), true);
  expect_close(sum, dx, "dx accumulated");
}

// Deferred gradients have the bits of those computed at once, although dy, and with recomputation x, are overwritten.
TEST_P(LinearTest, DeferredGradientsAreTheSame) {
  std::vector<Shape> shapes = {Shape{O, I}, Shape{O}};
  for (const LowRank& l : adapters_) {
    shapes.push_back(Shape{l.rank, I});
    shapes.push_back(Shape{O, l.rank});
  }
  std::vector<int64_t> dropout_rows(T);
  std::iota(dropout_rows.begin(), dropout_rows.end(), int64_t{5} << 32);
  const Tensor rows_of_dropout{dropout_rows.data(), DType::i64, Shape{T}, device_.get()};
  const auto run = [&](float dropout, spec::Recompute recompute, bool defers) {
    for (LowRank& l : adapters_) l.adapter.dropout = dropout;
    std::vector<Matrix> results;
    std::map<int, Tensor> tensors;
    for (const Shape& shape : shapes) results.emplace_back(static_cast<size_t>(shape.elements()), 99.0F);
    for (size_t i = 0; i < shapes.size(); ++i) tensors[static_cast<int>(i)] = view(results[i], shapes[i]);
    MapAccumulator accumulator(tensors);
    const size_t bytes = Arena::footprint(DType::f32, Shape{T, O}) +
                         (recompute == spec::Recompute::none ? 0 : Arena::footprint(DType::f32, Shape{T, I}));
    Arena kept(*device_, 2 * bytes, "kept");
    DeferredGradients deferred(kept);
    Training training{accumulator, {0, 3, 7, 9}, recompute, rows_of_dropout, 11, 1};
    if (defers) training.deferred = &deferred;
    Pass pass{context_, batch_, DType::f32, segments(), nullptr, &training};
    Matrix dx(static_cast<size_t>(T * I)), dy = dy_, x = x_;
    const auto backward = [&] {
      layer_.backward(pass, view(dx, Shape{T, I}), view(dy, Shape{T, O}), view(x, Shape{T, I}), false);
    };
    backward();
    // Again with other values in the same memory, as the recomputed activations of another block.
    for (float& value : dy) value *= 3;
    if (recompute != spec::Recompute::none) std::ranges::reverse(x);
    backward();
    if (defers) {
      EXPECT_FALSE(accumulator.has(0));
      std::ranges::fill(dy, 7.0F);
      if (recompute != spec::Recompute::none) std::ranges::fill(x, 7.0F);
      training.deferred = nullptr;
      deferred.compute(pass);
    }
    results.push_back(dx);
    return results;
  };
  for (const float dropout : {0.0F, 0.25F}) {
    for (const spec::Recompute recompute : {spec::Recompute::none, spec::Recompute::full})
      EXPECT_EQ(run(dropout, recompute, true), run(dropout, recompute, false));
  }
}

INSTANTIATE_TEST_SUITE_P(Batches, LinearTest,
                         testing::Values(Scenario{"two", {{3, 0, 4}, {5, 6, T}}}, Scenario{"all", {{4, 0, T}}},
                                         Scenario{"all_decoded", {{4, 0, T}}, true}, Scenario{"first", {{4, 0, 5}}},
                                         Scenario{"last", {{5, 2, T}}}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace ingot::nn
