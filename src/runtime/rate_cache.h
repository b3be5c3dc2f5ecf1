// Cache of a CPU's measured rates, so that the reference of a run's speed does not depend on how busy the machine was
// when the run started.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/function_ref.h"

namespace ingot::runtime {

// The configuration for which rates are valid. Other machines and other kernels have other rates.
struct RatesKey {
  std::string processor;
  int64_t cores = 0;       // available to this process
  std::string isa;         // instruction set of the kernels
  int64_t threads = 0;     // per rank
  int64_t ranks = 1;       // ranks of the machine, which compute at the same time
  std::string version;     // Ingot's version
  std::string operations;  // INGOT_OPS: the restriction of op implementations
};

struct MeasuredRates {
  std::vector<double> values;   // each above 0
  std::string date;             // UTC, as utc_timestamp()
  std::string not_cached = {};  // error message when they could not be cached
};

// One file for each measurement and key in one folder, published by rename: processes may write concurrently. A file
// that is missing, damaged, or of another key is ignored.
class RateCache {
 public:
  // With an empty folder (no home folder) nothing is cached.
  RateCache(std::filesystem::path folder, RatesKey key) : folder_(std::move(folder)), key_(std::move(key)) {}

  // `count`: expected number of values.
  std::optional<MeasuredRates> find(const std::string& what, size_t count) const;
  // Replaces the cached rates. Returns an error message; empty on success.
  std::string store(const std::string& what, const MeasuredRates& rates) const;

 private:
  std::filesystem::path file(const std::string& what) const;

  std::filesystem::path folder_;
  RatesKey key_;
};

// When to measure. if_missing: only if nothing is cached. again: always, replacing the cached rates. raise: always, and
// the larger of each old and new value is used, for when the cached rates have proved too low.
enum class Measure { if_missing, again, raise };

// Returns the rates to use, after storing them in the cache if they were measured.
MeasuredRates cached_or_measured(const RateCache& cache, const std::string& what, size_t count, Measure when,
                                 FunctionRef<std::vector<double>()> measure);

}  // namespace ingot::runtime
