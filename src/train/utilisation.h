// Shares of a device's peak FLOP/s that steps reach: MFU and HFU (Chowdhery et al. 2022, arXiv 2204.02311, appendix B)
// and others.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "tensor/device_rates.h"

namespace ingot::train {

// FLOPs of a step.
struct StepWork {
  double useful = 0;       // causal attention, without padding and recomputation
  double full_square = 0;  // the same with full-square attention over the packed sequence
  double executed = 0;     // causal attention, with padding and recomputation
};

// Each is at most 1; absent when the rate is unknown or the share would be above 1.
struct Shares {
  std::optional<double> mfu, mfu_full_square, hfu;  // of DeviceRates::peak
  std::optional<double> gemm;                       // useful work relative to DeviceRates::gemm
};

// A share above 1 comes from a wrong FLOP count or rate and is not reported. Rates that were measured while the machine
// was busy are too low: when a step exceeds them, they are measured again, at most `max_measurements` times, and the
// highest value of each is used from then on.
class Utilisation {
 public:
  static constexpr int max_measurements = 3;

  // Without `measure` the rates are fixed, as from a datasheet.
  explicit Utilisation(DeviceRates rates, std::function<DeviceRates()> measure = nullptr)
      : rates_(std::move(rates)), measure_(std::move(measure)), left_(measure_ ? max_measurements : 0) {}

  struct Result {
    Shares shares;
    std::string warning;  // that rates were measured again, or (once) that shares are withheld
  };
  Result of(const StepWork& work, double seconds);

  const DeviceRates& rates() const { return rates_; }

 private:
  DeviceRates rates_;
  std::function<DeviceRates()> measure_;
  int left_;
  bool reported_ = false;
};

}  // namespace ingot::train
