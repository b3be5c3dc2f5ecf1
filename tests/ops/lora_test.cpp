// Row invariance of ops::lora: a row's bits depend on the row and its adapter only, so a sequence gets the same bits
// alone and among sequences with the same or other adapters.
#include "ops/lora.h"

#include <gtest/gtest.h>

#include <cstring>

#include "backend/cpu/cpu_device.h"
#include "base/thread_pool.h"
#include "ops/registry.h"
#include "tests/ops/stored.h"

namespace ingot {
namespace {

class LoraBits : public testing::TestWithParam<std::tuple<DType, bool>> {
 protected:
  static constexpr int64_t in = 101, out = 83;
  LoraBits() { cpu::register_ops(registry_); }

  Tensor random(DType dtype, const Shape& shape, uint64_t id) {
    const std::vector<std::byte> bytes = stored(storage_of(dtype), random_values(shape.elements(), id));
    Buffer& buffer = buffers_.emplace_back(*device_, bytes.size());
    std::memcpy(buffer.data(), bytes.data(), bytes.size());
    return buffer.view(dtype, shape);
  }

  // Rows begin .. end - 1 of y after the adapter's term was added.
  std::vector<std::byte> rows(const Tensor& x, const Tensor& entries, const Tensor& slots, int64_t begin, int64_t end,
                              int threads) {
    ThreadPool pool(threads);
    Arena scratch(*device_, 1 << 20, "scratch");
    const Tensor y = random(std::get<1>(GetParam()) ? DType::f32 : x.dtype, Shape{x.shape[0], out}, 3);
    ops::Context context{*device_, registry_, scratch, &pool};
    const Tensor part = y.slice(begin, end);
    ops::lora(context, part, x.slice(begin, end), entries, slots.slice(begin, end), {.layer = 0, .rank = 40});
    const auto* bytes = static_cast<const std::byte*>(part.data);
    return {bytes, bytes + part.bytes()};
  }

  std::unique_ptr<Device> device_ = cpu::make_device();
  ops::Registry registry_;
  std::vector<Buffer> buffers_;
};

TEST_P(LoraBits, OfARowDoNotDependOnOtherRows) {
  const DType dtype = std::get<0>(GetParam());
  constexpr int64_t tokens = 60;
  const Tensor x = random(dtype, Shape{tokens, in}, 1);
  std::vector<ops::LoraEntry> table;
  for (const int32_t rank : {8, 16, 40, 3}) {
    const Tensor a = random(dtype, Shape{rank, in}, 10 + static_cast<uint64_t>(rank));
    const Tensor b = random(dtype, Shape{out, rank}, 60 + static_cast<uint64_t>(rank));
    table.push_back({a.data, b.data, rank, 0.25F * static_cast<float>(rank)});
  }
  const Tensor entries{table.data(), DType::i64, Shape{std::ssize(table), 1, 3}, device_.get()};
  // Thirty rows of one adapter, some without one, then each row with its own.
  std::vector<int32_t> slot;
  for (int32_t t = 0; t < tokens; ++t) slot.push_back(t < 30 ? 1 : t < 35 ? -1 : t % 4);
  const Tensor slots{slot.data(), DType::i32, Shape{tokens}, device_.get()};

  const std::vector<std::byte> whole = rows(x, entries, slots, 0, tokens, 1);
  EXPECT_EQ(rows(x, entries, slots, 0, tokens, 3), whole);
  const size_t row = whole.size() / tokens;
  for (const int64_t count : {1, 2, 7, 8, 9, 17}) {
    for (int64_t begin = 0; begin + count <= tokens; ++begin) {
      const std::vector<std::byte> some = rows(x, entries, slots, begin, begin + count, 2);
      ASSERT_EQ(std::memcmp(some.data(), whole.data() + static_cast<size_t>(begin) * row, some.size()), 0)
          << count << " rows from " << begin;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, LoraBits,
                         testing::Combine(testing::Values(DType::f32, DType::bf16, DType::f16), testing::Bool()),
                         [](const auto& info) {
                           return std::string(name(std::get<0>(info.param))) +
                                  (std::get<1>(info.param) ? "_to_f32" : "");
                         });

}  // namespace
}  // namespace ingot
