// Whether runs of one recipe, on other devices or moved between devices, agree up to rounding: `ingot bench curves`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ingot::bench {

// A run's losses compared with those of the first run.
struct CurveAgreement {
  std::string run;  // its folder
  int64_t steps = 0, starts = 0;
  double difference = 0;  // the largest relative one; infinite where steps are missing
  double at = 0;          // its step
  bool agrees = false;
};

struct CurvesReport {
  int64_t steps = 0;                 // of the first run
  std::string precision;             // of its recipe
  double allowed = 0;                // relative difference
  std::vector<CurveAgreement> rows;  // of the other runs

  bool agrees() const;
};

// `folders`: runs/NAME; the first is what the others are compared with. Errors: usage for fewer than two; those of
// reading a run.
CurvesReport compare_curves(const std::vector<std::string>& folders);

}  // namespace ingot::bench
