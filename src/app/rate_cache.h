// Rates of a CPU, measured once and cached: what a run is compared with does not depend on how busy the machine was
// when that run began.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/function_ref.h"

namespace ingot::app {

// What rates hold for. Those of another machine, or of other kernels, are others.
struct RatesKey {
  std::string processor;
  int64_t cores = 0;       // that this process may use
  std::string isa;         // level of the kernels
  int64_t threads = 0;     // of a rank
  int64_t ranks = 1;       // of the machine, which compute at the same time
  std::string version;     // of Ingot
  std::string operations;  // INGOT_OPS: what the choice of implementations was narrowed to
};

struct MeasuredRates {
  std::vector<double> values;   // each above 0
  std::string date;             // UTC, as utc_timestamp()
  std::string not_cached = {};  // why they could not be cached
};

// A file for each measurement and key in one folder, published by rename: processes may write at the same time. It is a
// cache: a file that is missing, damaged, or of another key is as none.
class RateCache {
 public:
  // Without a folder, as where there is no home folder, nothing is cached.
  RateCache(std::filesystem::path folder, RatesKey key) : folder_(std::move(folder)), key_(std::move(key)) {}

  // `count`: how many values there must be.
  std::optional<MeasuredRates> find(const std::string& what, size_t count) const;
  // Replaces what was cached. Returns why that failed; empty when it was done.
  std::string store(const std::string& what, const MeasuredRates& rates) const;

 private:
  std::filesystem::path file(const std::string& what) const;

  std::filesystem::path folder_;
  RatesKey key_;
};

// When to measure: where nothing is cached; anyway, and the result replaces what was cached; or anyway, and the higher
// of each value counts, for when the cached ones have proved too low.
enum class Measure { if_missing, again, raise };

// The rates that count from now on, which are then cached.
MeasuredRates cached_or_measured(const RateCache& cache, const std::string& what, size_t count, Measure when,
                                 FunctionRef<std::vector<double>()> measure);

}  // namespace ingot::app
