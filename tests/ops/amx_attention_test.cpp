// Attention with AMX tiles, on any machine with AVX-512: the level's source, compiled with emulated tile registers. It
// must agree with the AVX-512 level, whose sums have another order, and a token's bits must not depend on how its
// sequence was cut.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "backend/cpu/isa.h"
#include "backend/cpu/simd/attention.h"
#include "base/half.h"
#include "base/host_memory.h"
#include "base/philox.h"
#include "ops/attention_bytes.h"

namespace ingot::cpu::emulated {
extern const AttentionKernels attention_kernels;
}

namespace ingot::cpu {
namespace {

struct Shape {
  int64_t tokens, heads, head_dim;
  int64_t window = no_window;
  float softcap = 0;
};

void PrintTo(const Shape& s, std::ostream* out) {
  *out << s.tokens << " tokens, " << s.heads << " heads of " << s.head_dim;
}

// One key/value head of a sequence of random values.
class AmxAttention : public testing::TestWithParam<Shape> {
 protected:
  using Bits = std::vector<uint16_t>;
  struct Forward {
    Bits out;
    std::vector<float> lse;
  };
  struct Gradients {
    Bits dq, dk, dv;
  };

  void SetUp() override {
    if (machine_isa() < Isa::avx512) GTEST_SKIP() << "this machine has no AVX-512 with bf16 dot products";
  }

  Bits random(int64_t rows, int64_t columns, uint64_t seed) const {
    RandomStream stream(seed);
    Bits bits(static_cast<size_t>(rows * columns));
    for (uint16_t& each : bits) each = float_to_bf16(static_cast<float>(stream.normal()));
    return bits;
  }
  AttentionScores scores() const {
    return {1.0F / std::sqrt(static_cast<float>(shape_.head_dim)), shape_.softcap, shape_.window, nullptr};
  }

  // In pieces of `piece` queries.
  Forward forward(const AttentionKernels& kernels, int64_t piece) {
    Forward result{Bits(q_.size()), std::vector<float>(static_cast<size_t>(shape_.heads * shape_.tokens))};
    for (int64_t begin = 0; begin < shape_.tokens; begin += piece) {
      AttentionForward task{};
      task.type = ElementType::bf16;
      task.q = q_.data() + begin * width_;
      task.out = result.out.data() + begin * width_;
      task.lse = result.lse.data() + begin;
      task.lse_stride = shape_.tokens;
      task.k = k_.data();
      task.v = v_.data();
      task.q_stride = width_;
      task.kv_stride = shape_.head_dim;
      task.page = 1;
      task.queries = std::min(piece, shape_.tokens - begin);
      task.heads = shape_.heads;
      task.kv_heads = 1;
      task.first = begin;
      task.head_dim = shape_.head_dim;
      task.scores = scores();
      task.scratch = scratch_.data();
      kernels.forward(task);
    }
    return result;
  }

  Gradients backward(const AttentionKernels& kernels, const Forward& saved) {
    const int64_t tokens = shape_.tokens, d = shape_.head_dim;
    std::vector<float> delta(saved.lse.size());
    kernels.delta(true, dout_.data(), saved.out.data(), delta.data(), shape_.heads, d, tokens, 0, tokens);
    Gradients result{Bits(q_.size()), Bits(k_.size()), Bits(v_.size())};
    const int64_t blocks = (tokens + attention_block - 1) / attention_block;
    std::vector<float> sums(static_cast<size_t>(blocks * shape_.heads * d * attention_block));
    for (int64_t block = 0; block < blocks; ++block) {
      AttentionBackward task{};
      task.bf16 = true;
      task.q = q_.data();
      task.dout = dout_.data();
      task.dq = result.dq.data();
      task.lse = saved.lse.data();
      task.delta = delta.data();
      task.k = k_.data();
      task.v = v_.data();
      task.dk = result.dk.data();
      task.dv = result.dv.data();
      task.q_stride = width_;
      task.kv_stride = d;
      task.row_stride = tokens;
      task.length = tokens;
      task.begin = block * attention_block;
      task.end = std::min(task.begin + attention_block, tokens);
      task.head_dim = d;
      task.scores = scores();
      task.scratch = scratch_.data();
      kernels.backward_begin(task);
      for (int64_t h = 0; h < shape_.heads; ++h) {
        for (int64_t b = block; b < blocks; ++b) {
          float* at = sums.data() + (b * shape_.heads + h) * d * attention_block;
          kernels.backward_queries(task, {.head = h, .begin = b * attention_block, .sums = at, .first = block == 0});
        }
      }
      kernels.backward_end(task);
    }
    return result;
  }

  // Both are bf16 of sums that differ in the last bits of fp32, and of probabilities rounded to bf16.
  static void expect_close(const Bits& found, const Bits& wanted, const char* what) {
    double largest = 0, difference = 0;
    for (size_t i = 0; i < found.size(); ++i) {
      const double a = bf16_to_float(found[i]), b = bf16_to_float(wanted[i]);
      ASSERT_TRUE(std::isfinite(a)) << what;
      largest = std::max(largest, std::abs(b));
      difference = std::max(difference, std::abs(a - b));
    }
    EXPECT_LE(difference, 0x1p-7 * largest) << what;
    EXPECT_GT(largest, 0) << what;
  }

  const Shape shape_ = GetParam();
  const int64_t width_ = shape_.heads * shape_.head_dim;
  const Bits q_ = random(shape_.tokens, width_, 1), k_ = random(shape_.tokens, shape_.head_dim, 2),
             v_ = random(shape_.tokens, shape_.head_dim, 3), dout_ = random(shape_.tokens, width_, 4);
  HostMemory scratch_{ops::attention_thread_bytes(shape_.head_dim), HostMemory::Pages::small, "scratch"};
};

TEST_P(AmxAttention, AgreesWithAvx512) {
  const Forward wanted = forward(avx512::attention_kernels, 64), found = forward(emulated::attention_kernels, 64);
  expect_close(found.out, wanted.out, "out");
  for (size_t i = 0; i < found.lse.size(); ++i) EXPECT_NEAR(found.lse[i], wanted.lse[i], 1e-5) << i;
  const Gradients expected = backward(avx512::attention_kernels, wanted);
  const Gradients gradients = backward(emulated::attention_kernels, wanted);
  expect_close(gradients.dq, expected.dq, "dq");
  expect_close(gradients.dk, expected.dk, "dk");
  expect_close(gradients.dv, expected.dv, "dv");
}

TEST_P(AmxAttention, BitsDoNotDependOnThePieces) {
  const Forward whole = forward(emulated::attention_kernels, 64);
  for (const int64_t piece : {1, 5, 16, 33}) {
    const Forward cut = forward(emulated::attention_kernels, piece);
    EXPECT_EQ(cut.out, whole.out) << piece;
    EXPECT_EQ(std::memcmp(cut.lse.data(), whole.lse.data(), whole.lse.size() * sizeof(float)), 0) << piece;
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, AmxAttention,
                         testing::Values(Shape{2, 1, 64}, Shape{64, 2, 32}, Shape{150, 3, 64}, Shape{97, 3, 80},
                                         Shape{131, 1, 128}, Shape{70, 2, 20}, Shape{200, 2, 64, 50},
                                         Shape{100, 3, 16, no_window, 4.0F}));

}  // namespace
}  // namespace ingot::cpu
