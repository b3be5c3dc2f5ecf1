// Muon's whole update; its single ops are in the op table.
#include "ops/muon.h"

#include <gtest/gtest.h>

#include <cmath>

#include "backend/cpu/cpu_device.h"
#include "base/half.h"
#include "base/philox.h"
#include "base/thread_pool.h"
#include "ops/muon_bytes.h"
#include "ops/registry.h"
#include "tensor/tolerance.h"
#include "tests/ops/expect_internal.h"

namespace ingot {
namespace {

// A dense row-major matrix in double.
struct Matrix {
  int64_t rows = 0, columns = 0;
  std::vector<double> values = std::vector<double>(static_cast<size_t>(rows * columns));

  double& at(int64_t r, int64_t c) { return values[static_cast<size_t>(r * columns + c)]; }
  double at(int64_t r, int64_t c) const { return values[static_cast<size_t>(r * columns + c)]; }
  double norm() const {
    double squares = 0;
    for (const double value : values) squares += value * value;
    return std::sqrt(squares);
  }
};

Matrix product(const Matrix& a, const Matrix& b) {
  Matrix c{a.rows, b.columns};
  for (int64_t i = 0; i < a.rows; ++i) {
    for (int64_t j = 0; j < b.columns; ++j) {
      for (int64_t k = 0; k < a.columns; ++k) c.at(i, j) += a.at(i, k) * b.at(k, j);
    }
  }
  return c;
}

Matrix transposed(const Matrix& a) {
  Matrix t{a.columns, a.rows};
  for (int64_t i = 0; i < a.rows; ++i) {
    for (int64_t j = 0; j < a.columns; ++j) t.at(j, i) = a.at(i, j);
  }
  return t;
}

// The Newton-Schulz iteration as one polynomial in B = X^T X, whichever side is shorter: X (a I + b B + c B^2).
Matrix iterate(Matrix x) {
  const double norm = std::max(x.norm(), 1e-7);
  for (double& value : x.values) value /= norm;
  for (int step = 0; step < 5; ++step) {
    const Matrix gram = product(transposed(x), x);
    Matrix polynomial = product(gram, gram);
    for (int64_t i = 0; i < gram.rows; ++i) {
      for (int64_t j = 0; j < gram.columns; ++j) {
        polynomial.at(i, j) = 2.0315 * polynomial.at(i, j) - 4.7750 * gram.at(i, j) + (i == j ? 3.4445 : 0);
      }
    }
    x = product(x, polynomial);
  }
  return x;
}

Matrix random_matrix(int64_t rows, int64_t columns, uint64_t seed) {
  Matrix matrix{rows, columns};
  RandomStream random(seed, 1);
  for (double& value : matrix.values) value = static_cast<double>(static_cast<float>(random.normal()));
  return matrix;
}

class Muon : public testing::Test {
 protected:
  Muon() { cpu::register_ops(registry_); }

  Buffer on_device(const Matrix& matrix) {
    const std::vector<float> values(matrix.values.begin(), matrix.values.end());
    Buffer buffer(*device_, values.size() * sizeof(float));
    device_->copy_from_host(buffer.data(), values.data(), buffer.bytes());
    return buffer;
  }
  Matrix on_host(const Tensor& tensor) {
    Matrix matrix{tensor.shape[0], tensor.shape[1]};
    for (size_t i = 0; i < matrix.values.size(); ++i) {
      matrix.values[i] = tensor.dtype == DType::f32 ? static_cast<double>(tensor.as<float>()[i])
                                                    : static_cast<double>(bf16_to_float(tensor.as<uint16_t>()[i]));
    }
    return matrix;
  }
  // Runs `body` with exactly `bytes` of scratch.
  template <class Body>
  void run(size_t bytes, int threads, Body body) {
    Arena scratch(*device_, bytes, "scratch");
    ThreadPool pool(threads);
    ops::Context context{*device_, registry_, scratch, &pool};
    body(context);
    EXPECT_EQ(scratch.used(), 0U);
    EXPECT_LE(scratch.peak(), bytes);
  }
  Matrix orthogonalised(const Matrix& x, DType type, int threads = 2) {
    const Buffer memory = on_device(x);
    const Tensor tensor = memory.view(DType::f32, {x.rows, x.columns});
    run(ops::newton_schulz_bytes(x.rows, x.columns, size_of(type)), threads,
        [&](ops::Context& context) { ops::newton_schulz(context, tensor, type); });
    return on_host(tensor);
  }

  std::unique_ptr<Device> device_ = cpu::make_device();
  ops::Registry registry_;
};

double distance(const Matrix& a, const Matrix& b) {
  Matrix difference = a;
  for (size_t i = 0; i < a.values.size(); ++i) difference.values[i] -= b.values[i];
  return difference.norm();
}

// The bound for a chain of fifteen products.
double bound(const Matrix& x, DType type) { return tolerance(type, 15 * std::max(x.rows, x.columns)); }

TEST_F(Muon, NewtonSchulzAppliesItsPolynomialToSingularValues) {
  uint64_t seed = 1;
  for (const auto& [rows, columns] :
       {std::pair<int64_t, int64_t>{1, 1}, {1, 9}, {16, 40}, {40, 16}, {33, 70}, {70, 7}}) {
    const Matrix x = random_matrix(rows, columns, seed++);
    const Matrix exact = iterate(x);
    for (const DType type : {DType::f32, DType::bf16}) {
      EXPECT_LT(distance(orthogonalised(x, type), exact), bound(x, type) * exact.norm())
          << rows << " x " << columns << " " << name(type);
    }
  }
}

// For a matrix with known singular values: they approach 1, and the singular vectors do not change.
TEST_F(Muon, NewtonSchulzOrthogonalises) {
  Matrix x{24, 12};  // diagonal
  for (int64_t i = 0; i < 12; ++i) x.at(i, i) = (i % 2 == 0 ? 1.0 : -1.0) * std::pow(0.8, static_cast<double>(i));
  const Matrix found = orthogonalised(x, DType::f32);
  for (int64_t i = 0; i < 24; ++i) {
    for (int64_t j = 0; j < 12; ++j) {
      if (i != j) {
        EXPECT_EQ(found.at(i, j), 0.0);
      } else {
        EXPECT_GT(found.at(i, i) / (i % 2 == 0 ? 1 : -1), 0.65) << i;
        EXPECT_LT(found.at(i, i) / (i % 2 == 0 ? 1 : -1), 1.25) << i;
      }
    }
  }
}

TEST_F(Muon, AMatrixOfZerosStaysZero) { EXPECT_EQ(orthogonalised(Matrix{5, 7}, DType::bf16).norm(), 0.0); }

TEST_F(Muon, BitsDoNotDependOnThreads) {
  const Matrix x = random_matrix(150, 260, 9);
  for (const DType type : {DType::f32, DType::bf16}) {
    const Matrix one = orthogonalised(x, type, 1);
    EXPECT_EQ(orthogonalised(x, type, 2).values, one.values);
    EXPECT_EQ(orthogonalised(x, type, 3).values, one.values);
  }
}

// A complete update scaled by the clipping decision, and a halted one.
TEST_F(Muon, UpdatesFollowTheFormula) {
  const Matrix master = random_matrix(12, 30, 1), momentum = random_matrix(12, 30, 2),
               gradient = random_matrix(12, 30, 3);
  for (const bool halted : {false, true}) {
    const Buffer master_memory = on_device(master), momentum_memory = on_device(momentum);
    const Buffer gradient_memory = on_device(gradient), weight_memory(*device_, 12 * 30 * 2), decision(*device_, 24);
    const double decided[] = {7, 0.125, halted ? 1.0 : 0.0};
    device_->copy_from_host(decision.data(), decided, sizeof decided);
    const Shape shape{12, 30};
    const ops::MuonState state{master_memory.view(DType::f32, shape), momentum_memory.view(DType::f32, shape),
                               weight_memory.view(DType::bf16, shape)};
    run(ops::muon_bytes(12, 30, 4), 2, [&](ops::Context& context) {
      ops::muon(context, state, gradient_memory.view(DType::f32, shape),
                {.lr = 0.01F,
                 .momentum = 0.9F,
                 .weight_decay = 0.1F,
                 .gradient_scale = 1000,
                 .decision = decision.view(DType::f64, {3})});
    });
    if (halted) {
      EXPECT_EQ(on_host(state.master).values, master.values);
      EXPECT_EQ(on_host(state.momentum).values, momentum.values);
      EXPECT_EQ(on_host(state.weight).norm(), 0.0);
      continue;
    }
    Matrix moment{12, 30}, update{12, 30}, expected{12, 30};
    for (size_t i = 0; i < expected.values.size(); ++i) {
      const double g = gradient.values[i] * 0.125;
      moment.values[i] = 0.9 * momentum.values[i] + 0.1 * g;
      update.values[i] = 0.9 * moment.values[i] + 0.1 * g;
    }
    update = iterate(update);
    for (size_t i = 0; i < expected.values.size(); ++i) {
      expected.values[i] = master.values[i] * (1 - 0.01 * 0.1) - 0.01 * 0.2 * std::sqrt(30.0) * update.values[i];
    }
    EXPECT_LT(distance(on_host(state.momentum), moment), tolerance(DType::f32, 1) * moment.norm());
    EXPECT_LT(distance(on_host(state.master), expected),
              tolerance(DType::f32, 1) * master.norm() + bound(master, DType::f32) * distance(expected, master));
    EXPECT_LT(distance(on_host(state.weight), expected), tolerance(DType::bf16, 1) * expected.norm());
  }
}

TEST_F(Muon, InvalidArgumentsAreRefused) {
  Arena scratch;
  ThreadPool pool(1);
  ops::Context context{*device_, registry_, scratch, &pool};
  const Buffer memory(*device_, 64);
  const Tensor matrix = memory.view(DType::f32, {4, 4}), flat = memory.view(DType::f32, {16});
  expect_internal([&] { ops::newton_schulz(context, flat, DType::f32); }, "newton_schulz: x");
  expect_internal([&] { ops::newton_schulz(context, matrix, DType::f16); },
                  "newton_schulz: iterates in f32 or bf16, not f16");
  expect_internal([&] { ops::muon(context, {matrix, flat, {}}, matrix, {}); }, "muon: momentum");
}

}  // namespace
}  // namespace ingot
