// The bits of a matmul depend on k only, not on the other rows and columns or on threads.
#include "ops/matmul.h"

#include <gtest/gtest.h>

#include <cmath>

#include "backend/cpu/cpu_device.h"
#include "base/half.h"
#include "base/philox.h"
#include "base/thread_pool.h"
#include "ops/registry.h"
#include "tensor/tolerance.h"

namespace ingot {
namespace {

struct Form {
  const char* name;
  bool transpose_a, transpose_b;
};

// Of simd/pair_gemm.h and simd/fma_gemm.h.
bool is_bf16_engine(std::string_view engine) { return engine == "avx512_bf16" || engine == "avx512_fma"; }

class MatmulBits : public testing::TestWithParam<std::tuple<const char*, DType, DType>> {
 protected:
  MatmulBits() {
    cpu::register_ops(registry_);
    for (const auto& listing : registry_.listings()) {
      if (listing.op != "matmul") continue;
      const auto& all = listing.implementations;
      present_ = std::find(all.begin(), all.end(), std::get<0>(GetParam())) != all.end();
    }
    cpu::register_ops(reference_);
    reference_.select_implementation("matmul", "reference");
    if (present_) registry_.select_implementation("matmul", std::get<0>(GetParam()));
  }

  Tensor random(Buffer& buffer, Shape shape, DType dtype, uint64_t id) {
    RandomStream stream(7, id);
    buffer = Buffer(*device_, static_cast<size_t>(shape.elements()) * size_of(dtype));
    const Tensor tensor = buffer.view(dtype, shape);
    for (int64_t i = 0; i < tensor.elements(); ++i) {
      const float value = stream.uniform() - 0.5F;
      if (dtype == DType::f32) {
        tensor.as<float>()[i] = value;
      } else {
        tensor.as<uint16_t>()[i] = dtype == DType::bf16 ? float_to_bf16(value) : float_to_f16(value);
      }
    }
    return tensor;
  }

  // a [m, k] and b [k, n] in the layout of the form.
  struct Operands {
    Buffer memory_a, memory_b;
    Tensor a, b;
  };
  Operands operands(const Form& form, int64_t m, int64_t n, int64_t k) {
    const DType in = std::get<1>(GetParam());
    Operands made;
    made.a = random(made.memory_a, form.transpose_a ? Shape{k, m} : Shape{m, k}, in, 1);
    made.b = random(made.memory_b, form.transpose_b ? Shape{n, k} : Shape{k, n}, in, 2);
    return made;
  }

  // Rows [row, row + m) and columns [column, column + n) of the product, computed alone from copies of the operands.
  std::vector<std::byte> part(ThreadPool& pool, const Form& form, const Tensor& a, const Tensor& b, int64_t row,
                              int64_t m, int64_t column, int64_t n, bool accumulate) {
    return part(registry_, pool, form, a, b, row, m, column, n, accumulate);
  }
  std::vector<std::byte> part(const ops::Registry& registry, ThreadPool& pool, const Form& form, const Tensor& a,
                              const Tensor& b, int64_t row, int64_t m, int64_t column, int64_t n, bool accumulate) {
    const int64_t k = a.shape[form.transpose_a ? 0 : 1];
    const auto copy = [&](Buffer& buffer, const Tensor& from, bool lines_are_rows, int64_t first, int64_t count) {
      const size_t size = size_of(from.dtype);
      buffer = Buffer(*device_, static_cast<size_t>(count * k) * size);
      const Tensor to = buffer.view(from.dtype, lines_are_rows ? Shape{count, k} : Shape{k, count});
      if (lines_are_rows) {
        std::memcpy(to.data, from.slice(first, first + count).data, to.bytes());
      } else {
        for (int64_t i = 0; i < k; ++i) {
          std::memcpy(to.slice(i, i + 1).data,
                      static_cast<std::byte*>(from.slice(i, i + 1).data) + static_cast<size_t>(first) * size,
                      static_cast<size_t>(count) * size);
        }
      }
      return to;
    };
    Buffer buffer_a;
    Buffer buffer_b;
    const Tensor part_a = copy(buffer_a, a, !form.transpose_a, row, m);
    const Tensor part_b = copy(buffer_b, b, form.transpose_b, column, n);
    const DType out = std::get<2>(GetParam());
    Buffer result(*device_, static_cast<size_t>(m * n) * size_of(out));
    const Tensor c = result.view(out, Shape{m, n});
    ops::Context context{*device_, registry, scratch_, &pool};
    ops::MatmulAttributes attributes{form.transpose_a, form.transpose_b, false};
    ops::matmul(context, c, part_a, part_b, attributes);
    attributes.accumulate = true;
    if (accumulate) ops::matmul(context, c, part_a, part_b, attributes);
    std::vector<std::byte> bytes(c.bytes());
    std::memcpy(bytes.data(), c.data, bytes.size());
    return bytes;
  }

  std::unique_ptr<Device> device_ = cpu::make_device();
  ops::Registry registry_, reference_;
  Arena scratch_;
  bool present_ = false;
};

TEST_P(MatmulBits, DoNotDependOnRowsColumnsOrThreads) {
  if (!present_) return;  // this machine lacks the ISA level
  const DType out = std::get<2>(GetParam());
  ThreadPool one(1);
  ThreadPool two(2);
  ThreadPool three(3);
  constexpr int64_t rows = 96;
  constexpr int64_t columns = 160;
  for (const Form& form : {Form{"NT", false, true}, Form{"NN", false, false}, Form{"TN", true, false}}) {
    for (const int64_t k : {64, 577, 4100}) {
      // Our kernels that treat all k alike need no long sums.
      const std::string_view engine = std::get<0>(GetParam());
      if (k > 1000 && engine != "onednn" && engine != "amx" && !is_bf16_engine(engine)) continue;
      const Operands made = operands(form, rows, columns, k);
      const Tensor &a = made.a, &b = made.b;
      for (const bool accumulate : {false, true}) {
        const auto whole = part(one, form, a, b, 0, rows, 0, columns, accumulate);
        EXPECT_TRUE(part(two, form, a, b, 0, rows, 0, columns, accumulate) == whole) << form.name << " 2 threads";
        EXPECT_TRUE(part(three, form, a, b, 0, rows, 0, columns, accumulate) == whole) << form.name << " 3 threads";
        const size_t row_size = columns * size_of(out);
        for (const int64_t m : {33, 65, 81}) {  // a split into whole panels would leave one row
          const auto some = part(one, form, a, b, 0, m, 0, columns, accumulate);
          EXPECT_TRUE(part(two, form, a, b, 0, m, 0, columns, accumulate) == some) << form.name << " 2 threads";
          EXPECT_TRUE(part(three, form, a, b, 0, m, 0, columns, accumulate) == some) << form.name << " 3 threads";
        }
        for (const int64_t m : {1, 2, 3, 7, 16, 31, 64}) {
          const int64_t first = rows - m;
          if (m == 1 && form.transpose_a && k > 1000) continue;  // rows of a weight gradient are never computed alone
          const auto some = part(one, form, a, b, first, m, 0, columns, accumulate);
          EXPECT_EQ(std::memcmp(some.data(), whole.data() + static_cast<size_t>(first) * row_size, some.size()), 0)
              << form.name << " K=" << k << " accumulate=" << accumulate << ": " << m << " rows alone differ";
        }
        for (const int64_t n : {1, 5, 16, 48, 99}) {
          const int64_t first = columns - n;
          const auto some = part(one, form, a, b, 0, rows, first, n, accumulate);
          bool same = true;
          for (int64_t r = 0; r < rows; ++r) {
            const size_t width = static_cast<size_t>(n) * size_of(out);
            same = same && std::memcmp(some.data() + static_cast<size_t>(r) * width,
                                       whole.data() + static_cast<size_t>(r) * row_size +
                                           static_cast<size_t>(first) * size_of(out),
                                       width) == 0;
          }
          EXPECT_TRUE(same) << form.name << " K=" << k << " accumulate=" << accumulate << ": " << n
                            << " columns alone differ";
        }
      }
    }
  }
}

// Sizes at which implementations split k (4200), n (2100), and m (2100, with k of more than one part).
TEST_P(MatmulBits, LongSumsAndWideProductsAgreeWithTheReference) {
  if (!present_) return;  // this machine lacks the ISA level
  const DType out = std::get<2>(GetParam());
  ThreadPool two(2);
  for (const auto& [m, n, k] : {std::tuple<int64_t, int64_t, int64_t>(19, 37, 4200), {5, 2100, 600}, {2100, 5, 1101}}) {
    for (const Form& form :
         {Form{"NT", false, true}, Form{"NN", false, false}, Form{"TN", true, false}, Form{"TT", true, true}}) {
      const Operands made = operands(form, m, n, k);
      const Tensor &a = made.a, &b = made.b;
      for (const bool accumulate : {false, true}) {
        const auto found = part(two, form, a, b, 0, m, 0, n, accumulate);
        const auto expected = part(reference_, two, form, a, b, 0, m, 0, n, accumulate);
        const auto value = [&](const std::vector<std::byte>& bytes, int64_t i) {
          const std::byte* at = bytes.data() + static_cast<size_t>(i) * size_of(out);
          if (out == DType::f32) return *reinterpret_cast<const float*>(at);
          const uint16_t half = *reinterpret_cast<const uint16_t*>(at);
          return out == DType::bf16 ? bf16_to_float(half) : f16_to_float(half);
        };
        // Terms are at most 1/4. A 16-bit result is rounded once for each of two products.
        const double sum = 4 * static_cast<double>(k) * 0.25 * unit_roundoff(DType::f32);
        const double rounding = out == DType::f32 ? 0 : 2 * unit_roundoff(out);
        double worst = 0;
        for (int64_t i = 0; i < m * n; ++i) {
          const double want = value(expected, i);
          worst = std::max(worst, std::abs(value(found, i) - want) - rounding * std::abs(want));
        }
        EXPECT_LE(worst, sum) << form.name << " " << m << " x " << n << " x " << k << " accumulate=" << accumulate;
      }
    }
  }
}

// Memory after the end of a row or column does not matter: paired loads do not read beyond it.
TEST_P(MatmulBits, DoNotDependOnNeighbours) {
  if (!present_) return;  // this machine lacks the ISA level
  const size_t size = size_of(std::get<2>(GetParam()));
  ThreadPool one(1);
  for (const int64_t k : {1, 2, 31, 64, 65}) {
    const Form form{"NT", false, true};
    const Operands made = operands(form, 5, 7, k);
    for (const Tensor& odd : {made.a.slice(1, 2), made.a.slice(3, 4), made.b.slice(2, 3), made.b.slice(5, 6)}) {
      std::memset(odd.data, 0xff, odd.bytes());  // NaN
    }
    const auto whole = part(one, form, made.a, made.b, 0, 5, 0, 7, false);
    for (const int64_t row : {0, 2, 4}) {
      for (const int64_t column : {0, 1, 3, 4, 6}) {
        const auto alone = part(one, form, made.a, made.b, row, 1, column, 1, false);
        const size_t place = static_cast<size_t>(row * 7 + column) * size;
        EXPECT_EQ(std::memcmp(alone.data(), whole.data() + place, size), 0) << row << ", " << column << ", k " << k;
      }
    }
  }
}

// A product that is split in m, n and k has the bits of its edges and of the split lines, each computed alone.
TEST_P(MatmulBits, OfALargeProductEqualThoseOfItsParts) {
  // Only implementations that split by size.
  const std::string_view engine = std::get<0>(GetParam());
  if (!present_ || (engine != "amx" && !is_bf16_engine(engine))) return;
  const size_t element = size_of(std::get<2>(GetParam()));
  ThreadPool two(2);
  constexpr int64_t rows = 2099;
  constexpr int64_t columns = 2091;
  for (const Form& form : {Form{"NT", false, true}, Form{"NN", false, false}, Form{"TN", true, false},
                           Form{"TT", true, true}, Form{"NT of even k", false, true}}) {
    const Operands made = operands(form, rows, columns, form.name == std::string_view("NT of even k") ? 2086 : 2085);
    const Tensor &a = made.a, &b = made.b;
    const auto whole = part(two, form, a, b, 0, rows, 0, columns, true);
    for (const int64_t row : {int64_t{0}, int64_t{251}, int64_t{2043}, rows - 7}) {
      for (const int64_t column : {int64_t{0}, int64_t{2043}, columns - 9}) {
        const int64_t m = std::min<int64_t>(11, rows - row);
        const int64_t n = std::min<int64_t>(13, columns - column);
        const auto some = part(two, form, a, b, row, m, column, n, true);
        const size_t width = static_cast<size_t>(n) * element;
        for (int64_t r = 0; r < m; ++r) {
          const size_t place = static_cast<size_t>((row + r) * columns + column) * element;
          EXPECT_EQ(std::memcmp(some.data() + static_cast<size_t>(r) * width, whole.data() + place, width), 0)
              << form.name << ": row " << row + r << " from column " << column;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, MatmulBits, testing::ValuesIn([] {
                           std::vector<std::tuple<const char*, DType, DType>> all;
                           for (const char* implementation :
                                {"amx", "avx512_bf16", "avx512_fma", "onednn", "avx512", "avx2", "plain"}) {
                             for (const auto& [in, out] :
                                  {std::pair(DType::f32, DType::f32), std::pair(DType::bf16, DType::f32),
                                   std::pair(DType::bf16, DType::bf16), std::pair(DType::f16, DType::f32),
                                   std::pair(DType::f16, DType::f16)}) {
                               const std::string_view engine = implementation;
                               if (in == DType::f16 && engine == "onednn") continue;  // oneDNN has no f16 kernels
                               if (in != DType::bf16 && (engine == "amx" || is_bf16_engine(engine))) continue;
                               all.emplace_back(implementation, in, out);
                             }
                           }
                           return all;
                         }()),
                         [](const auto& info) {
                           return fmt::format("{}_{}_{}", std::get<0>(info.param), name(std::get<1>(info.param)),
                                              name(std::get<2>(info.param)));
                         });

}  // namespace
}  // namespace ingot
