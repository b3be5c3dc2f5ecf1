// Shares of a device's peak that steps reach (specs: flops.md).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>

namespace ingot::train {

// FLOP/s of a device; 0 where that is not known.
struct DeviceRates {
  double peak = 0;        // of the precision's products: measured on a CPU, the datasheet's on a GPU
  double gemm = 0;        // what matrix products of this program reach
  std::string date = {};  // when a CPU's were measured (UTC); empty for a GPU's
};

// FLOPs of a step.
struct StepWork {
  double useful = 0;       // causal, without padding and what was recomputed
  double full_square = 0;  // the same with attention as the full square of the packed sequence
  double executed = 0;     // causal, with padding and what was recomputed
};

// Each at most 1; absent where the rate is not known, and where the share would be above 1.
struct Shares {
  std::optional<double> mfu, mfu_full_square, hfu;  // of DeviceRates::peak
  std::optional<double> gemm;                       // useful work, of DeviceRates::gemm
};

// A share above 1 is a mistake, in the counting or in the rate, and is not given out. Rates that were measured while
// the machine was busy are too low: a step above them has them measured again, at most `most_measurements` times, and
// the highest of each counts from then on.
class Utilisation {
 public:
  static constexpr int most_measurements = 3;

  // Without `measure` the rates are fixed, as a datasheet's are.
  explicit Utilisation(DeviceRates rates, std::function<DeviceRates()> measure = nullptr)
      : rates_(std::move(rates)), measure_(std::move(measure)), left_(measure_ ? most_measurements : 0) {}

  struct Result {
    Shares shares;
    std::string warning;  // that rates were measured again, or that shares are kept back; the latter once
  };
  Result of(const StepWork& work, double seconds);

  const DeviceRates& rates() const { return rates_; }

 private:
  DeviceRates rates_;
  std::function<DeviceRates()> measure_;
  int left_;
  bool told_ = false;
};

}  // namespace ingot::train
