#include "train/utilisation.h"

#include <fmt/format.h>

#include <algorithm>

namespace ingot::train {

namespace {

bool above(double rate, double limit) { return limit > 0 && rate > limit; }

std::optional<double> share(double flops, double seconds, double limit) {
  const double rate = flops / seconds;
  if (limit <= 0 || above(rate, limit)) return std::nullopt;
  return rate / limit;
}

// Whether any share of this step would be above 1.
bool any_above(const StepWork& work, double seconds, const DeviceRates& rates) {
  const double largest = std::max({work.useful, work.full_square, work.executed});
  return above(largest / seconds, rates.peak) || above(work.useful / seconds, rates.gemm);
}

}  // namespace

Utilisation::Result Utilisation::of(const StepWork& work, double seconds) {
  Result result;
  if (any_above(work, seconds, rates_)) {
    const DeviceRates before = rates_;
    if (left_ > 0) {
      --left_;
      const DeviceRates measured = measure_();
      rates_ = {std::max(before.peak, measured.peak), std::max(before.gemm, measured.gemm), measured.date};
      result.warning = fmt::format(
          "the step was faster than the measured rates allow (peak {:.3f} TFLOP/s, gemm {:.3f}): measured again, they "
          "are {:.3f} and {:.3f}",
          before.peak / 1e12, before.gemm / 1e12, rates_.peak / 1e12, rates_.gemm / 1e12);
    }
    if (any_above(work, seconds, rates_) && !reported_ && left_ == 0) {
      reported_ = true;
      if (!result.warning.empty()) result.warning += "; ";
      result.warning += fmt::format(
          "{:.3f} TFLOP/s is above the measured peak of {:.3f} or gemm rate of {:.3f}: utilisation above 100 % is not "
          "reported",
          work.useful / seconds / 1e12, rates_.peak / 1e12, rates_.gemm / 1e12);
    }
  }
  result.shares.mfu = share(work.useful, seconds, rates_.peak);
  result.shares.mfu_full_square = share(work.full_square, seconds, rates_.peak);
  result.shares.hfu = share(work.executed, seconds, rates_.peak);
  result.shares.gemm = share(work.useful, seconds, rates_.gemm);
  return result;
}

}  // namespace ingot::train
