// The workspace of the CPU's ops: it is all the memory that they take beside Context::scratch, and how large it is
// changes no bit.
#include "backend/cpu/workspace.h"

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <functional>

#include "backend/cpu/cpu_device.h"
#include "base/thread_pool.h"
#include "ops/lora.h"
#include "ops/matmul.h"
#include "ops/matmul_bytes.h"
#include "ops/registry.h"
#include "tests/host_heap.h"
#include "tests/ops/stored.h"

namespace ingot {
namespace {

class CpuWorkspace : public testing::Test {
 protected:
  Tensor random(DType dtype, const Shape& shape, uint64_t id) {
    const std::vector<std::byte> bytes = stored(storage_of(dtype), random_values(shape.elements(), id));
    Buffer& buffer = buffers_.emplace_back(*device_, bytes.size());
    std::memcpy(buffer.data(), bytes.data(), bytes.size());
    return buffer.view(dtype, shape);
  }
  Weight weight(StorageType storage, int64_t out, int64_t in) {
    const std::vector<std::byte> bytes = stored(storage, random_values(out * in, 5));
    Buffer& buffer = buffers_.emplace_back(*device_, bytes.size());
    std::memcpy(buffer.data(), bytes.data(), bytes.size());
    return {.storage = storage, .data = buffer.data(), .out = out, .in = in, .device = device_.get()};
  }
  Tensor zeros(DType dtype, const Shape& shape) {
    Buffer& buffer = buffers_.emplace_back(*device_, static_cast<size_t>(shape.elements()) * size_of(dtype));
    return buffer.view(dtype, shape);
  }

  // Calls `op` with the given implementation of `name` and this pool.
  void call(const std::string& name, const std::string& implementation, ThreadPool& pool, Arena& scratch,
            const std::function<void(ops::Context&)>& op) {
    ops::Registry registry;
    cpu::register_ops(registry);
    registry.select_implementation(name, implementation);
    ops::Context context{*device_, registry, scratch, &pool};
    op(context);
  }

  std::vector<std::string> implementations(const std::string& op) const {
    ops::Registry registry;
    cpu::register_ops(registry);
    for (const auto& listing : registry.listings()) {
      if (listing.op == op && listing.device == DeviceKind::cpu) return listing.implementations;
    }
    return {};
  }

  std::unique_ptr<Device> device_ = cpu::make_device();
  std::deque<Buffer> buffers_;
};

// With threads that have run nothing before. Tables that oneDNN and we keep for a shape are there from the first call.
TEST_F(CpuWorkspace, IsAllThatOpsTakeOfTheHost) {
  const Tensor slots = zeros(DType::i32, Shape{70});
  const Tensor c = zeros(DType::f32, Shape{130, 200}), y = zeros(DType::f32, Shape{70, 300});
  Arena scratch(*device_, ops::linear_bytes(70, 300, 1024, 4, true, true), "scratch");
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Tensor a = random(dtype, Shape{130, 700}, 1), b = random(dtype, Shape{700, 200}, 2);
    const Tensor at = random(dtype, Shape{700, 130}, 3), x = random(dtype, Shape{70, 1024}, 4);
    const Weight encoded = weight(StorageType::q4_1, 300, 1024);
    const Tensor low_a = random(dtype, Shape{32, 1024}, 6), low_b = random(dtype, Shape{300, 32}, 7);
    const ops::LoraEntry entry{low_a.data, low_b.data, 32, 0.5F};
    const Tensor entries{const_cast<ops::LoraEntry*>(&entry), DType::i64, Shape{1, 1, 3}, device_.get()};
    const auto products = [&](ops::Context& context) {
      ops::matmul(context, c, a, b, {});
      ops::matmul(context, c, at, b, {.transpose_a = true});
    };
    const auto linear = [&](ops::Context& context) {
      const Tensor few = x.slice(0, 2);
      ops::linear(context, y.slice(0, 2), few, encoded, {});
    };
    const auto lora = [&](ops::Context& context) {
      ops::lora(context, y, x, entries, slots, {.layer = 0, .rank = 32});
    };
    const auto grows = [&](const std::string& op, const std::string& implementation, auto run) {
      ThreadPool first(2), second(2);
      const auto repeat = [&](ThreadPool& pool) {
        try {
          call(op, implementation, pool, scratch, [&](ops::Context& context) {
            for (int i = 0; i < 20; ++i) run(context);  // on every thread
          });
        } catch (const Error& error) {
          if (error.kind() != ErrorKind::unsupported) throw;  // an engine that does not take this type
        }
      };
      repeat(first);
      const int64_t before = host_heap_bytes();
      repeat(second);
      EXPECT_LE(host_heap_bytes() - before, small_objects) << op << " " << implementation << " " << name(dtype);
      EXPECT_EQ(scratch.used(), 0U);
    };
    for (const std::string& implementation : implementations("matmul")) {
      if (implementation != "reference") grows("matmul", implementation, products);
    }
    for (const std::string& implementation : implementations("linear")) {
      if (implementation != "reference") grows("linear", implementation, linear);
    }
    for (const std::string& implementation : implementations("lora")) {
      if (implementation != "reference") grows("lora", implementation, lora);
    }
  }
}

// oneDNN copies operands with gaps, and computes in blocks where the copies do not fit: no bit is another one. Lengths
// of which halves would leave one row, and one column.
TEST_F(CpuWorkspace, OfAnySizeGivesTheSameProducts) {
  const std::vector<std::string> all = implementations("matmul");
  if (std::find(all.begin(), all.end(), "onednn") == all.end()) return;  // not at this level
  Arena scratch;
  ThreadPool large(2, {}, {.per_thread = size_t{64} << 20, .shared = 0});
  ThreadPool usual(2), small(2, {}, {.per_thread = size_t{3} << 19, .shared = 0});
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const DType out : {DType::f32, dtype}) {
      for (const auto& [m, n, k] : {std::tuple<int64_t, int64_t, int64_t>(1025, 513, 1100), {40, 1539, 2100}}) {
        const Tensor a = random(dtype, Shape{m, k}, 1), at = random(dtype, Shape{k, m}, 2);
        const Tensor b = random(dtype, Shape{k, n}, 3), bt = random(dtype, Shape{n, k}, 4);
        for (const bool transpose_a : {false, true}) {
          for (const bool transpose_b : {false, true}) {
            const auto product = [&](ThreadPool& pool) {
              const Tensor c = random(out, Shape{m, n}, 5);
              call("matmul", "onednn", pool, scratch, [&](ops::Context& context) {
                ops::matmul(context, c, transpose_a ? at : a, transpose_b ? bt : b,
                            {transpose_a, transpose_b, /*accumulate=*/true});
              });
              const auto* bytes = static_cast<const std::byte*>(c.data);
              std::vector<std::byte> found(bytes, bytes + c.bytes());
              buffers_.pop_back();
              return found;
            };
            const std::vector<std::byte> expected = product(large);
            EXPECT_TRUE(product(usual) == expected) << name(dtype) << " " << transpose_a << transpose_b << " " << m;
            EXPECT_TRUE(product(small) == expected) << name(dtype) << " " << transpose_a << transpose_b << " " << m;
          }
        }
      }
    }
  }
}

// Rows that are decoded, and rows of low-rank terms: as many at a time as there is room for.
TEST_F(CpuWorkspace, OfAnySizeGivesTheSameRows) {
  constexpr int64_t in = 1024, out = 100, tokens = 41, rank = 48;
  Arena scratch;
  ThreadPool usual(2), small(2, {}, {.per_thread = 4 << 10, .shared = 0});
  const Weight encoded = weight(StorageType::q4_1, out, in);
  const Tensor slots = zeros(DType::i32, Shape{tokens});
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const Tensor x = random(dtype, Shape{tokens, in}, 1);
    const Tensor low_a = random(dtype, Shape{rank, in}, 6), low_b = random(dtype, Shape{out, rank}, 7);
    const ops::LoraEntry entry{low_a.data, low_b.data, rank, 0.5F};
    const Tensor entries{const_cast<ops::LoraEntry*>(&entry), DType::i64, Shape{1, 1, 3}, device_.get()};
    const auto rows = [&](const std::string& op, const std::string& implementation, ThreadPool& pool) {
      const Tensor y = random(dtype, Shape{tokens, out}, 8);
      call(op, implementation, pool, scratch, [&](ops::Context& context) {
        if (op == "lora") return ops::lora(context, y, x, entries, slots, {.layer = 0, .rank = rank});
        ops::linear(context, y.slice(0, 2), x.slice(0, 2), encoded, {});
      });
      const auto* bytes = static_cast<const std::byte*>(y.data);
      return std::vector<std::byte>(bytes, bytes + y.bytes());
    };
    for (const std::string op : {"lora", "linear"}) {
      for (const std::string& implementation : implementations(op)) {
        if (op == "linear" ? implementation != "dot" : implementation == "reference") continue;
        EXPECT_EQ(rows(op, implementation, small), rows(op, implementation, usual))
            << op << " " << implementation << " " << name(dtype);
      }
    }
  }
}

TEST_F(CpuWorkspace, HasTheSizeThatItsLevelNeeds) {
  constexpr size_t mib = size_t{1} << 20;
  for (const cpu::Isa isa : {cpu::Isa::plain, cpu::Isa::avx2, cpu::Isa::avx512, cpu::Isa::avx512_fma, cpu::Isa::amx}) {
    const WorkspaceBytes bytes = cpu::workspace_bytes(isa);
    EXPECT_EQ(bytes.per_thread, 4 * mib);
    EXPECT_EQ(bytes.shared, isa == cpu::Isa::amx ? 24 * mib : 0);
    EXPECT_LE(bytes.per_thread, WorkspaceBytes{}.per_thread);  // the default suffices for every level
    EXPECT_LE(bytes.shared, WorkspaceBytes{}.shared);
  }
}

TEST_F(CpuWorkspace, IsAnErrorWhereItIsTooSmall) {
  Arena scratch;
  ThreadPool none(2, {}, no_workspace);
  const auto expect_error = [&](const char* op, const char* implementation,
                                const std::function<void(ops::Context&)>& run) {
    try {
      call(op, implementation, none, scratch, run);
      FAIL() << op << " without memory for its panels";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::internal);
      EXPECT_NE(error.message().find("workspace"), std::string::npos) << error.message();
    }
  };
  const Tensor a = random(DType::f32, Shape{64, 64}, 1), c = zeros(DType::f32, Shape{64, 64});
  expect_error("matmul", "plain", [&](ops::Context& context) { ops::matmul(context, c, a, a, {}); });
  // A weight that has to be decoded before it is multiplied.
  const Weight stored = weight(StorageType::q4_1, 64, 64);
  const Tensor x = random(DType::f32, Shape{1, 64}, 2), y = zeros(DType::f32, Shape{1, 64});
  expect_error("linear", "dot", [&](ops::Context& context) { ops::linear(context, y, x, stored, {}); });
}

}  // namespace
}  // namespace ingot
