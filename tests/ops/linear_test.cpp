// Row invariance of linear layers for serving: a sequence gets the same bits alone and in a batch.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <span>

#include "backend/cpu/cpu_device.h"
#include "backend/cpu/isa.h"
#include "backend/cpu/row_order.h"
#include "base/philox.h"
#include "base/thread_pool.h"
#include "ops/linear_group.h"
#include "ops/linear_int8.h"
#include "ops/linear_int8_bytes.h"
#include "ops/matmul.h"
#include "ops/matmul_bytes.h"
#include "ops/registry.h"
#include "tests/ops/stored.h"

namespace ingot {
namespace {

class LinearBits : public testing::TestWithParam<std::tuple<DType, StorageType>> {
 protected:
  LinearBits() { cpu::register_ops(registry_); }

  void* keep(const void* data, size_t bytes) {
    buffers_.emplace_back(*device_, bytes);
    std::memcpy(buffers_.back().data(), data, bytes);
    return buffers_.back().data();
  }
  void* keep_as(StorageType storage, const std::vector<float>& values) {
    const std::vector<std::byte> bytes = stored(storage, values);
    return keep(bytes.data(), bytes.size());
  }
  Weight weight(int64_t out, int64_t in) {
    const StorageType storage = std::get<1>(GetParam());
    return {.storage = storage,
            .data = keep_as(storage, random_values(out * in, 1)),
            .out = out,
            .in = in,
            .device = device_.get()};
  }

  // Rows begin .. end - 1 of x, as a copy.
  std::vector<std::byte> rows(const Weight& w, const Tensor& x, int64_t begin, int64_t end, int threads,
                              bool accumulate) {
    ThreadPool pool(threads);
    const Tensor part = x.slice(begin, end);
    const Tensor own{keep(part.data, part.bytes()), x.dtype, part.shape, device_.get()};
    const size_t bytes_needed = std::max(ops::linear_bytes(end - begin, w.out, w.in, size_of(x.dtype), true, true),
                                         ops::linear_int8_bytes(end - begin, w.in));
    Arena scratch(*device_, bytes_needed, "scratch");
    Buffer memory(*device_, static_cast<size_t>((end - begin) * w.out) * size_of(x.dtype));
    const Tensor y = memory.view(x.dtype, {end - begin, w.out});
    ops::Context context{*device_, registry_, scratch, &pool};
    ops::LinearAttributes attributes{.row_invariant = true, .prefer_skinny = true};
    linear_(context, y, own, w, attributes);
    attributes.accumulate = true;
    if (accumulate) linear_(context, y, own, w, attributes);
    const auto* bytes = static_cast<const std::byte*>(y.data);
    return {bytes, bytes + y.bytes()};
  }

  void expect_rows_alone_equal_rows_together();

  decltype(&ops::linear) linear_ = ops::linear;
  std::unique_ptr<Device> device_ = cpu::make_device();
  ops::Registry registry_;
  std::vector<Buffer> buffers_;
};

// Widths that are no multiple of the vector width, rows that are no multiple of the tile, and more tokens than a block.
void LinearBits::expect_rows_alone_equal_rows_together() {
  const auto [dtype, storage] = GetParam();
  const int64_t in = is_block(storage) ? 65 * 32 : 1013;  // an odd number of blocks
  const Weight w = weight(107, in);
  constexpr int64_t tokens = 401;
  const Tensor x{keep_as(storage_of(dtype), random_values(tokens * in, 2)), dtype, {tokens, in}, device_.get()};
  const size_t row = static_cast<size_t>(w.out) * size_of(dtype);
  for (const bool accumulate : {false, true}) {
    const std::vector<std::byte> whole = rows(w, x, 0, tokens, 1, accumulate);
    EXPECT_EQ(rows(w, x, 0, tokens, 3, accumulate), whole);
    for (const int64_t count : {1, 2, 3, 4, 5, 6, 7, 11, 12, 64, 193}) {
      const int64_t begin = (tokens - count) / 3;
      const std::vector<std::byte> some = rows(w, x, begin, begin + count, 2, accumulate);
      EXPECT_EQ(std::memcmp(some.data(), whole.data() + static_cast<size_t>(begin) * row, some.size()), 0) << count;
    }
  }
}

TEST_P(LinearBits, OfARowDoNotDependOnOtherRows) { expect_rows_alone_equal_rows_together(); }

// Also where a thread's rows are of several layers.
TEST_P(LinearBits, OfAGroupEqualThoseOfItsLayers) {
  const auto [dtype, storage] = GetParam();
  const int64_t in = is_block(storage) ? 16 * 32 : 1013;
  const Weight weights[] = {weight(107, in), weight(3, in), weight(160, in)};
  const auto zeros = [&](int64_t tokens, int64_t out) {
    const std::vector<float> values(static_cast<size_t>(tokens * out), 0.0F);
    return Tensor{keep_as(storage_of(dtype), values), dtype, {tokens, out}, device_.get()};
  };
  for (const bool int8 : {false, true}) {
    if (int8 && !ops::has_linear_int8(storage)) continue;
    const auto linear = int8 ? ops::linear_int8 : ops::linear;
    for (const int64_t tokens : {1, 2, 5}) {
      // With two tokens as outside serving, where every level has kernels for few tokens.
      const ops::LinearAttributes attributes{.row_invariant = tokens != 2, .prefer_skinny = tokens != 2};
      const Tensor x{keep_as(storage_of(dtype), random_values(tokens * in, 2)), dtype, {tokens, in}, device_.get()};
      Arena scratch(
          *device_,
          std::max(ops::linear_bytes(tokens, 160, in, size_of(dtype), true, true), ops::linear_int8_bytes(tokens, in)),
          "scratch");
      for (const int threads : {1, 3}) {
        ThreadPool pool(threads);
        ops::Context context{*device_, registry_, scratch, &pool};
        const Tensor y[] = {zeros(tokens, 107), zeros(tokens, 3), zeros(tokens, 160)};
        ops::linear_group(context, y, x, weights, {.linear = attributes, .int8_activations = int8});
        for (size_t i = 0; i < 3; ++i) {
          const Tensor alone = zeros(tokens, weights[i].out);
          linear(context, alone, x, weights[i], attributes);
          EXPECT_EQ(std::memcmp(y[i].data, alone.data, alone.bytes()), 0) << tokens << " tokens, layer " << i;
        }
      }
    }
  }
}

class Int8LinearBits : public LinearBits {};

TEST_P(Int8LinearBits, OfARowDoNotDependOnOtherRows) {
  linear_ = ops::linear_int8;
  expect_rows_alone_equal_rows_together();
}

// At every level: what is not finite must not become a number, since that is how damaged computations are found.
TEST(Int8Activations, StayNotFinite) {
  const auto device = cpu::make_device();
  constexpr int64_t in = 160, out = 5;
  ThreadPool pool(1);
  Arena scratch(*device, ops::linear_int8_bytes(1, in), "scratch");
  for (const StorageType storage : {StorageType::q8_0, StorageType::q4_0}) {
    const std::vector<std::byte> weights = stored(storage, random_values(out * in, 1));
    Buffer w_memory(*device, weights.size()), x_memory(*device, in * sizeof(float)),
        y_memory(*device, out * sizeof(float));
    std::memcpy(w_memory.data(), weights.data(), weights.size());
    const Weight w{.storage = storage, .data = w_memory.data(), .out = out, .in = in, .device = device.get()};
    const Tensor x = x_memory.view(DType::f32, {1, in}), y = y_memory.view(DType::f32, {1, out});
    for (const cpu::Isa isa : {cpu::Isa::plain, cpu::Isa::avx2, cpu::Isa::avx512, cpu::Isa::avx512_fma}) {
      if (isa > cpu::machine_isa()) continue;
      ops::Registry registry;
      cpu::register_ops(registry, {.best = isa});
      ops::Context context{*device, registry, scratch, &pool};
      for (const float value : {std::nanf(""), HUGE_VALF, -HUGE_VALF}) {
        for (const int64_t at : {0, 45, 64, 100, 159}) {  // in every block
          std::fill_n(x.as<float>(), in, 1.0F);
          x.as<float>()[at] = value;
          ops::linear_int8(context, y, x, w, {});
          for (int64_t o = 0; o < out; ++o) EXPECT_FALSE(std::isfinite(y.as<float>()[o])) << cpu::name(isa) << value;
        }
      }
    }
  }
}

// Tokens and rows that fill tiles of every pattern and leave some over, in one thread and in several.
TEST(RowOrders, GiveTheSameBits) {
  const auto device = cpu::make_device();
  constexpr int64_t in = 1013, out = 111;  // slices of 48 and 15 rows: tiles of 8, 4 and 1
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const std::vector<std::byte> stored_w = stored(storage_of(dtype), random_values(out * in, 1));
    const std::vector<std::byte> stored_x = stored(storage_of(dtype), random_values(3 * in, 2));
    Buffer w_memory(*device, stored_w.size()), x_memory(*device, stored_x.size());
    std::memcpy(w_memory.data(), stored_w.data(), stored_w.size());
    std::memcpy(x_memory.data(), stored_x.data(), stored_x.size());
    const Weight w{.storage = storage_of(dtype), .data = w_memory.data(), .out = out, .in = in, .device = device.get()};
    for (const int64_t tokens : {1, 2, 3}) {
      // "dot" takes three tokens where it serves batches.
      const cpu::Isa best = cpu::machine_levels().best;
      const bool serves = best == cpu::Isa::avx512 || best == cpu::Isa::avx512_fma;
      if (tokens == 3 && !serves) continue;
      const ops::LinearAttributes attributes{.row_invariant = serves, .prefer_skinny = serves};
      std::vector<std::byte> first;
      for (const cpu::RowOrder pattern : cpu::row_orders) {
        ops::Registry registry;
        cpu::Levels levels = cpu::machine_levels();
        levels.row_order = pattern;
        cpu::register_ops(registry, levels);
        registry.select_implementation("linear", "dot");
        for (const int threads : {1, 3}) {
          ThreadPool pool(threads);
          Arena scratch;
          ops::Context context{*device, registry, scratch, &pool};
          Buffer y_memory(*device, static_cast<size_t>(tokens * out) * sizeof(float));
          const Tensor y = y_memory.view(DType::f32, {tokens, out});
          ops::linear(context, y, x_memory.view(dtype, {tokens, in}), w, attributes);
          const auto* bytes = static_cast<const std::byte*>(y.data);
          const std::vector<std::byte> found(bytes, bytes + y.bytes());
          if (first.empty()) first = found;
          EXPECT_EQ(found, first) << name(dtype) << ", " << cpu::name(pattern) << ", " << tokens << " tokens";
        }
      }
    }
  }
}

// A machine of one AVX-512 level has the instructions of the other. Their orders of sums differ in pairs at most.
TEST(SkinnyGemm, AgreesAtBothAvx512Levels) {
  if (cpu::machine_isa() < cpu::Isa::avx512) return;
  const auto device = cpu::make_device();
  struct Size {
    int64_t out, in, tokens;  // in of bf16; rounded up to whole blocks for others
    int threads;
  };
  const auto compare = [&](StorageType storage, const Size& size) {
    const auto [out, tokens] = std::pair(size.out, size.tokens);
    const int64_t in = is_block(storage) ? (size.in + 255) / 256 * 256 : size.in;
    const std::vector<std::byte> stored_w = stored(storage, random_values(out * in, 1));
    const std::vector<std::byte> stored_x = stored(StorageType::bf16, random_values(tokens * in, 2));
    Buffer w_memory(*device, stored_w.size()), x_memory(*device, stored_x.size());
    std::memcpy(w_memory.data(), stored_w.data(), stored_w.size());
    std::memcpy(x_memory.data(), stored_x.data(), stored_x.size());
    const Weight w{.storage = storage, .data = w_memory.data(), .out = out, .in = in, .device = device.get()};
    const Tensor x = x_memory.view(DType::bf16, {tokens, in});
    std::vector<std::vector<float>> of_levels;
    for (const cpu::Isa isa : {cpu::Isa::avx512, cpu::Isa::avx512_fma}) {
      ops::Registry registry;
      cpu::register_ops(registry, {.best = isa});
      registry.select_implementation("linear", "dot");
      ThreadPool pool(size.threads);
      Arena scratch;
      ops::Context context{*device, registry, scratch, &pool};
      const auto first_rows = [&](int64_t count) {
        Buffer y_memory(*device, static_cast<size_t>(count * out) * sizeof(float));
        const Tensor y = y_memory.view(DType::f32, {count, out});
        ops::linear(context, y, x.slice(0, count), w, {.row_invariant = true, .prefer_skinny = true});
        return std::vector<float>(y.as<float>(), y.as<float>() + count * out);
      };
      const std::vector<float>& all = of_levels.emplace_back(first_rows(tokens));
      for (const int64_t count : {1, 2, 3, 5, 6, 7, 13}) {
        const std::vector<float> some = first_rows(count);
        EXPECT_TRUE(std::ranges::equal(some, std::span(all).first(some.size()))) << cpu::name(isa) << ' ' << count;
      }
    }
    for (size_t i = 0; i < of_levels[0].size(); ++i) ASSERT_NEAR(of_levels[0][i], of_levels[1][i], 1e-4) << i;
  };
  for (const StorageType storage : {StorageType::bf16, StorageType::q8_0, StorageType::q4_0}) {
    compare(storage, {107, 1013, 25, 2});
    compare(storage, {500, 1013, 97, 1});  // slices of 192 rows, of which several are widened or decoded at a time
  }
  compare(StorageType::q8_0, {200, 8192, 66, 1});  // fewer decoded rows than a slice has
}

// One token's kernel takes the values of 4-bit blocks from a table, those for more decode them: for every scale that
// f16 has, each of them that of a row.
TEST(SkinnyGemm, DecodesBlocksOfEveryScaleAlike) {
  if (cpu::machine_isa() < cpu::Isa::avx512) return;
  const auto device = cpu::make_device();
  constexpr int64_t in = 32, out = 65536, tokens = 13, block_bytes = 18;
  Buffer w_memory(*device, out * block_bytes);
  RandomStream stream(7, 1);
  for (int64_t row = 0; row < out; ++row) {
    auto* block = static_cast<uint8_t*>(w_memory.data()) + row * block_bytes;
    block[0] = static_cast<uint8_t>(row);
    block[1] = static_cast<uint8_t>(row >> 8);
    for (int64_t i = 2; i < block_bytes; ++i) block[i] = static_cast<uint8_t>(stream.uniform() * 256);
  }
  const std::vector<std::byte> stored_x = stored(StorageType::bf16, random_values(tokens * in, 2));
  Buffer x_memory(*device, stored_x.size());
  std::memcpy(x_memory.data(), stored_x.data(), stored_x.size());
  const Weight w{.storage = StorageType::q4_0, .data = w_memory.data(), .out = out, .in = in, .device = device.get()};
  ops::Registry registry;
  cpu::register_ops(registry, {.best = cpu::Isa::avx512_fma});
  registry.select_implementation("linear", "dot");
  ThreadPool pool(2);
  Arena scratch;
  ops::Context context{*device, registry, scratch, &pool};
  const auto first_rows = [&](int64_t count) {
    Buffer y_memory(*device, static_cast<size_t>(count * out) * sizeof(float));
    const Tensor y = y_memory.view(DType::f32, {count, out}), x = x_memory.view(DType::bf16, {tokens, in});
    ops::linear(context, y, x.slice(0, count), w, {.row_invariant = true, .prefer_skinny = true});
    return std::vector<float>(y.as<float>(), y.as<float>() + count * out);
  };
  const std::vector<float> all = first_rows(tokens);
  for (const int64_t count : {1, 2, 3}) {
    const std::vector<float> some = first_rows(count);
    for (size_t i = 0; i < some.size(); ++i) {
      const bool both_nan = std::isnan(some[i]) && std::isnan(all[i]);
      ASSERT_TRUE(both_nan || std::bit_cast<uint32_t>(some[i]) == std::bit_cast<uint32_t>(all[i]))
          << count << " tokens, scale " << i % out << ": " << some[i] << " and " << all[i];
    }
  }
}

TEST(RowOrders, AreKnownByProcessorFamily) {
  using cpu::RowOrder;
  EXPECT_EQ(cpu::known_row_order({"AuthenticAMD", 25, 17}), RowOrder::streams);      // Zen 4
  EXPECT_EQ(cpu::known_row_order({"AuthenticAMD", 26, 2}), RowOrder::interleaved);   // Zen 5
  EXPECT_EQ(cpu::known_row_order({"GenuineIntel", 6, 143}), RowOrder::interleaved);  // Sapphire Rapids
  EXPECT_EQ(cpu::known_row_order({"AuthenticAMD", 25, 1}), std::nullopt);            // Zen 3
  EXPECT_EQ(cpu::known_row_order({"AuthenticAMD", 26, 0x50}), std::nullopt);         // Zen 6
  EXPECT_EQ(cpu::known_row_order({"0x41", 0, 0xd4f}), std::nullopt);
  EXPECT_EQ(cpu::known_row_order({}), std::nullopt);
}

// Some levels have kernels that dequantize to bf16; the others use the codec.
TEST(Dequantization, GivesTheSameBitsAtEveryIsaLevel) {
  constexpr int64_t out = 7;
  constexpr int64_t in = 1056;  // 33 blocks
  const auto device = cpu::make_device();
  ThreadPool pool(2);
  Arena scratch;
  std::vector<float> values = random_values(out * in, 3);
  for (size_t i = 0; i < values.size(); ++i) values[i] *= std::exp2(static_cast<float>(i / 32 % 25) - 12.0F);
  for (const StorageType storage : {StorageType::q8_0, StorageType::q4_0}) {
    const std::vector<std::byte> bytes = stored(storage, values);
    Buffer blocks(*device, bytes.size());
    std::memcpy(blocks.data(), bytes.data(), bytes.size());
    const Weight weight{.storage = storage, .data = blocks.data(), .out = out, .in = in, .device = device.get()};
    const auto decoded = [&](const std::string& implementation) {
      ops::Registry registry;
      cpu::register_ops(registry);
      registry.select_implementation("dequantize", implementation);
      const Buffer memory(*device, static_cast<size_t>(out * in) * sizeof(uint16_t));
      const Tensor result = memory.view(DType::bf16, {out, in});
      ops::Context context{*device, registry, scratch, &pool};
      ops::dequantize(context, result, weight);
      const auto* first = result.as<uint16_t>();
      return std::vector<uint16_t>(first, first + out * in);
    };
    ops::Registry all;
    cpu::register_ops(all);
    const std::vector<uint16_t> expected = decoded("reference");
    for (const auto& entry : all.list<ops::Dequantize>(DeviceKind::cpu)) {
      EXPECT_EQ(decoded(entry.name), expected) << entry.name << " of " << name(storage);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, Int8LinearBits,
                         testing::Combine(testing::Values(DType::f32, DType::bf16, DType::f16),
                                          testing::Values(StorageType::q8_0, StorageType::q4_0)),
                         [](const auto& info) {
                           return std::string(name(std::get<0>(info.param))) + "_" + name(std::get<1>(info.param));
                         });
INSTANTIATE_TEST_SUITE_P(
    Cpu, LinearBits,
    testing::Combine(testing::Values(DType::f32, DType::bf16, DType::f16),
                     testing::Values(StorageType::f32, StorageType::bf16, StorageType::q8_0, StorageType::q4_0)),
    [](const auto& info) { return std::string(name(std::get<0>(info.param))) + "_" + name(std::get<1>(info.param)); });

}  // namespace
}  // namespace ingot
