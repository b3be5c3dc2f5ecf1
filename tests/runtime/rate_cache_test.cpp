#include "runtime/rate_cache.h"

#include <gtest/gtest.h>

#include <fstream>
#include <thread>

#include "base/file.h"
#include "tests/base/scratch.h"

namespace ingot::runtime {
namespace {

namespace fs = std::filesystem;

const RatesKey key = {.processor = "Some CPU", .cores = 4, .isa = "avx2", .threads = 2, .version = "1.0"};

// Returns the given measurements in order.
class Meter {
 public:
  explicit Meter(std::vector<std::vector<double>> values) : values_(std::move(values)) {}
  std::vector<double> operator()() { return values_.at(static_cast<size_t>(calls++)); }
  int calls = 0;

 private:
  std::vector<std::vector<double>> values_;
};

TEST(RateCache, RatesAreMeasuredOnceAndAgainOnRequest) {
  const Scratch scratch;
  const RateCache cache(scratch / "rates", key);
  Meter meter({{4, 3}, {2, 1}, {1, 5}});
  const MeasuredRates first = cached_or_measured(cache, "bf16", 2, Measure::if_missing, meter);
  EXPECT_EQ(first.values, (std::vector<double>{4, 3}));
  EXPECT_EQ(first.not_cached, "");
  EXPECT_EQ(first.date.size(), std::string("2026-11-21T05:13:24Z").size());
  const MeasuredRates then =
      cached_or_measured(RateCache(scratch / "rates", key), "bf16", 2, Measure::if_missing, meter);
  EXPECT_EQ(then.values, first.values);
  EXPECT_EQ(then.date, first.date);
  EXPECT_EQ(meter.calls, 1);
  EXPECT_EQ(cached_or_measured(cache, "bf16", 2, Measure::again, meter).values, (std::vector<double>{2, 1}));
  EXPECT_EQ(cache.find("bf16", 2)->values, (std::vector<double>{2, 1}));
  EXPECT_EQ(cached_or_measured(cache, "bf16", 2, Measure::raise, meter).values, (std::vector<double>{2, 5}));
  EXPECT_EQ(cache.find("bf16", 2)->values, (std::vector<double>{2, 5}));
  EXPECT_FALSE(cache.find("f32", 2));
}

TEST(RateCache, OtherMachinesAndKernelsHaveTheirOwnRates) {
  const Scratch scratch;
  EXPECT_EQ(RateCache(scratch / "rates", key).store("f32", {{1, 1}, "now"}), "");
  for (const auto& change : std::vector<void (*)(RatesKey&)>{
           [](RatesKey& k) { k.processor = "Another"; }, [](RatesKey& k) { k.cores = 8; },
           [](RatesKey& k) { k.isa = "plain"; }, [](RatesKey& k) { k.threads = 1; }, [](RatesKey& k) { k.ranks = 2; },
           [](RatesKey& k) { k.version = "1.1"; }, [](RatesKey& k) { k.operations = "linear=tiles"; }}) {
    RatesKey other = key;
    change(other);
    EXPECT_FALSE(RateCache(scratch / "rates", other).find("f32", 2));
  }
  EXPECT_TRUE(RateCache(scratch / "rates", key).find("f32", 2));
}

TEST(RateCache, DamagedFilesAreMeasuredAgain) {
  const Scratch scratch;
  const RateCache cache(scratch / "rates", key);
  ASSERT_EQ(cache.store("f32", {{7, 8}, "now"}), "");
  const fs::path file = fs::directory_iterator(scratch / "rates")->path();
  const std::string whole = read_file(file);
  for (const std::string& text :
       {std::string(), std::string("{"), std::string("[1]"), whole.substr(0, whole.size() / 2),
        std::string(whole).replace(whole.find("7.0"), 3, "-7."),
        std::string(whole).replace(whole.find("7.0"), 3, "9e9"),
        std::string(whole).replace(whole.find("avx2"), 4, "avx3")}) {
    std::ofstream(file) << text;
    const bool is_number = text.find("9e9") != std::string::npos;
    EXPECT_EQ(cache.find("f32", 2).has_value(), is_number) << text;
  }
  std::ofstream(file) << whole;
  EXPECT_FALSE(cache.find("f32", 1));
  EXPECT_TRUE(cache.find("f32", 2));
}

TEST(RateCache, WithoutAFolderNothingIsCached) {
  const RateCache none({}, key);
  Meter meter({{1}, {2}});
  EXPECT_EQ(cached_or_measured(none, "read", 1, Measure::if_missing, meter).values, std::vector<double>{1});
  const MeasuredRates again = cached_or_measured(none, "read", 1, Measure::if_missing, meter);
  EXPECT_EQ(again.values, std::vector<double>{2});
  EXPECT_NE(again.not_cached.find("neither HOME nor INGOT_HOME is set"), std::string::npos) << again.not_cached;
  // A cache path that cannot be a folder is reported and does not change the measurement.
  const Scratch scratch;
  std::ofstream(scratch / "file") << "no folder";
  const RateCache wrong(scratch / "file", key);
  EXPECT_NE(wrong.store("read", {{1}, "now"}).find("file"), std::string::npos);
  Meter third({{3}});
  const MeasuredRates measured = cached_or_measured(wrong, "read", 1, Measure::if_missing, third);
  EXPECT_EQ(measured.values, std::vector<double>{3});
  EXPECT_NE(measured.not_cached.find("file"), std::string::npos) << measured.not_cached;
}

// Readers see the complete rates of one writer.
TEST(RateCache, SeveralWritersMayRunAtOnce) {
  const Scratch scratch;
  const auto work = [&](double mine) {
    const RateCache cache(scratch / "rates", key);
    for (int i = 0; i < 20; ++i) {
      EXPECT_EQ(cache.store("bf16", {{mine, mine}, "now"}), "");
      const std::optional<MeasuredRates> found = cache.find("bf16", 2);
      ASSERT_TRUE(found);
      EXPECT_EQ(found->values[0], found->values[1]);
    }
  };
  std::thread one(work, 1.0), two(work, 2.0);
  one.join();
  two.join();
  EXPECT_EQ(std::distance(fs::directory_iterator(scratch / "rates"), {}), 1);
}

}  // namespace
}  // namespace ingot::runtime
