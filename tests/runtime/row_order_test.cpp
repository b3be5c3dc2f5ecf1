// The order in which a CPU reads weights: known, cached or measured.
#include <gtest/gtest.h>

#include <stdexcept>

#include "runtime/device_rates.h"
#include "tests/base/scratch.h"

namespace ingot::runtime {
namespace {

const ProcessorId unknown{"Somebody", 1, 2};
const RatesKey machine_key = {.processor = "Some CPU", .cores = 4, .isa = "avx2", .threads = 2, .version = "1.0"};

TEST(RowOrder, OfAnUnknownProcessorIsMeasuredOnceAndAgainOnRequest) {
  const Scratch scratch;
  const RateCache cache(scratch / "rates", machine_key);
  int measurements = 0;
  cpu::RowOrder next = cpu::RowOrder::prefetched;
  const auto measure = [&] {
    ++measurements;
    return next;
  };
  const CpuRowOrder first = cpu_row_order(unknown, cache, measure);
  EXPECT_EQ(first.order, cpu::RowOrder::prefetched);
  EXPECT_FALSE(first.date.empty());
  EXPECT_EQ(first.not_cached, "");
  next = cpu::RowOrder::streams;
  EXPECT_EQ(cpu_row_order(unknown, cache, measure).order, cpu::RowOrder::prefetched);
  EXPECT_EQ(measurements, 1);
  EXPECT_EQ(cpu_row_order(unknown, cache, measure, Measure::again).order, cpu::RowOrder::streams);
  EXPECT_EQ(cpu_row_order(unknown, cache, measure).order, cpu::RowOrder::streams);
  EXPECT_EQ(measurements, 2);
  // A number that stands for no order.
  EXPECT_EQ(cache.store("row-order", {{9}, "2026-11-26T00:00:00Z"}), "");
  EXPECT_EQ(cpu_row_order(unknown, cache, measure).order, cpu::RowOrder::streams);
  EXPECT_EQ(measurements, 3);
}

TEST(RowOrder, IsNotMeasuredWhereItIsKnownAndSaysWhyItIsNotCached) {
  const auto fail = []() -> cpu::RowOrder { throw std::logic_error("measured"); };
  const CpuRowOrder zen4 = cpu_row_order({"AuthenticAMD", 25, 17}, RateCache({}, machine_key), fail);
  EXPECT_EQ(zen4.order, cpu::RowOrder::streams);
  EXPECT_EQ(zen4.date, "");
  const CpuRowOrder homeless =
      cpu_row_order(unknown, RateCache({}, machine_key), [] { return cpu::RowOrder::interleaved; });
  EXPECT_EQ(homeless.order, cpu::RowOrder::interleaved);
  EXPECT_NE(homeless.not_cached, "");
}

}  // namespace
}  // namespace ingot::runtime
