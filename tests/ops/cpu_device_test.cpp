#include "backend/cpu/cpu_device.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "backend/cpu/best_of.h"
#include "backend/cpu/isa.h"
#include "base/error.h"
#include "base/thread_pool.h"

namespace ingot {
namespace {

// Sets INGOT_CPU_ISA for a scope.
class IsaOverride {
 public:
  explicit IsaOverride(const char* value) {
    if (const char* before = std::getenv("INGOT_CPU_ISA")) before_ = before;
    setenv("INGOT_CPU_ISA", value, 1);
  }
  ~IsaOverride() {
    if (before_) {
      setenv("INGOT_CPU_ISA", before_->c_str(), 1);
    } else {
      unsetenv("INGOT_CPU_ISA");
    }
  }

 private:
  std::optional<std::string> before_;
};

std::vector<std::string> implementations(const char* op) {
  ops::Registry registry;
  cpu::register_ops(registry);
  for (const ops::Registry::Listing& listing : registry.listings()) {
    if (listing.op == op) return listing.implementations;
  }
  return {};
}

TEST(CpuIsa, OverrideTakesEffect) {
  for (const cpu::Isa isa : {cpu::Isa::plain, cpu::Isa::avx2, cpu::Isa::avx512, cpu::Isa::avx512_fma, cpu::Isa::amx}) {
    const IsaOverride scope(cpu::name(isa));
    // avx512_fma has the instructions of avx512.
    const bool is_other_avx512 = isa == cpu::Isa::avx512_fma && cpu::machine_isa() == cpu::Isa::avx512;
    if (isa > cpu::machine_isa() && !is_other_avx512) {
      EXPECT_THROW(cpu::best_isa(), Error);
      continue;
    }
    EXPECT_EQ(cpu::best_isa(), isa);
    EXPECT_EQ(cpu::make_device()->arch(), cpu::name(isa));
    EXPECT_EQ(implementations("add").front(), cpu::name(std::min(isa, cpu::Isa::avx512)));
    EXPECT_EQ(implementations("add").back(), "reference");
    // oneDNN would use instructions above the requested level (except AMX, which it is denied), so it is offered only
    // at the level of the machine.
    const auto products = implementations("matmul");
    const bool onednn = std::find(products.begin(), products.end(), "onednn") != products.end();
    EXPECT_LE(onednn, std::min(isa, cpu::Isa::avx512) == std::min(cpu::machine_isa(), cpu::Isa::avx512));
    if (isa == cpu::Isa::avx512) EXPECT_TRUE(onednn);
    EXPECT_EQ(products.front() == "amx", isa == cpu::Isa::amx);
    EXPECT_EQ(products.front() == "avx512_fma", isa == cpu::Isa::avx512_fma);
    if (isa == cpu::Isa::avx512) {  // long sums are oneDNN's there, also beside a low-rank term
      EXPECT_LT(std::ranges::find(products, "onednn"), std::ranges::find(products, "avx512_fma"));
      const auto terms = implementations("linear_low_rank");
      EXPECT_LT(std::ranges::find(terms, "apart"), std::ranges::find(terms, "avx512_fma"));
    }
    EXPECT_EQ(implementations("attention").front() == "avx512_fma", isa == cpu::Isa::avx512_fma);
  }
}

TEST(CpuIsa, UnknownOverrideIsAnError) {
  const IsaOverride scope("sse9");
  try {
    cpu::best_isa();
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_NE(error.message().find("sse9"), std::string::npos);
  }
}

TEST(CpuDevice, MemoryIsZeroedAlignedAndCounted) {
  const auto device = cpu::make_device();
  constexpr size_t bytes = size_t{64} << 20;
  EXPECT_GT(device->memory_available(), bytes);
  EXPECT_LE(device->memory_available(), device->memory_bytes());
  for (const size_t size : {size_t{1}, size_t{1000}, bytes}) {
    auto* data = static_cast<unsigned char*>(device->allocate(size));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 64, 0U);
    for (size_t i = 0; i < size; i += 997) ASSERT_EQ(data[i], 0);
    device->release(data, size);
  }
}

TEST(CpuDevice, OutOfMemoryErrorsNameBothSizes) {
  const auto device = cpu::make_device();
  const size_t requested_bytes = device->memory_bytes() * 2;
  try {
    device->allocate(requested_bytes);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::resource);
    EXPECT_NE(error.message().find(std::to_string(requested_bytes)), std::string::npos) << error.message();
    EXPECT_NE(error.message().find("available"), std::string::npos);
  }
}

TEST(CpuPeaks, AreTheBestOfAlternatingRounds) {
  const std::array<double, 3> first = {2, 5, 4}, second = {3, 1, 1};
  size_t taken_first = 0, taken_second = 0;
  const std::array<double, 2> best = cpu::best_of(
      3,
      [&] {
        EXPECT_EQ(taken_first, taken_second);
        return first.at(taken_first++);
      },
      [&] { return second.at(taken_second++); });
  EXPECT_EQ(best, (std::array<double, 2>{5, 3}));
  EXPECT_EQ(taken_second, 3U);
}

TEST(CpuPeaks, AreMeasured) {
  const auto device = cpu::make_device();
  ops::Registry registry;
  cpu::register_ops(registry);
  Arena scratch;
  ThreadPool threads(2);
  ops::Context context{*device, registry, scratch, &threads};
  std::vector<double> rates = {cpu::measure_read(context, 0.01)};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const cpu::GemmRates products = cpu::measure_gemm(context, dtype, 0.02);
    EXPECT_GE(products.arithmetic, products.matmul);
    rates.push_back(products.matmul);
    rates.push_back(products.arithmetic);
  }
  for (const double rate : rates) {
    EXPECT_GT(rate, 1e6);
    EXPECT_TRUE(std::isfinite(rate));
  }
}

}  // namespace
}  // namespace ingot
