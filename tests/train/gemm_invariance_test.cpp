// What the bits of a step's gemms may depend on (ops::Invariance): libraries choose their algorithms by it.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/recorded_gemms.h"
#include "tests/train/small_run.h"

namespace ingot::train {
namespace {

using ops::Invariance;

// The gemms of one step.
std::vector<RecordedGemm> gemms_of(const SmallRun::Settings& settings) {
  SmallRun run(settings);
  run.registry = recording_registry();
  EXPECT_FALSE(run.run(1, 1e-3, run.sequences(4)).skipped);
  return recorded_gemms;
}

SmallRun::Settings in_units(int slices) {
  SmallRun::Settings settings{.threads = 1, .step = {.sequence_length = 24, .micro = 2}};
  settings.slices = slices;
  settings.types.fixed_point_sums = true;
  settings.step.accumulation_units = 4;
  return settings;
}

// Rows of the blocks' layers are a micro-batch's, whose size changes no result. Weight gradients and the head's gemms
// in a loss are those of an accumulation unit, of one size.
TEST(GemmInvariance, HoldsForTheRowsOfBlocksAlone) {
  for (const bool bitwise : {false, true}) {
    SmallRun::Settings settings = in_units(1);
    settings.types.fixed_point_sums = bitwise;
    if (!bitwise) settings.step.accumulation_units = 0;
    const std::vector<RecordedGemm> gemms = gemms_of(settings);
    int gradients = 0, heads = 0, layers = 0;
    for (const RecordedGemm& gemm : gemms) {
      const bool head = gemm.rows == settings.spec.vocab;
      EXPECT_EQ(gemm.invariance, gemm.weight_gradient || head ? Invariance::none : Invariance::rows)
          << gemm.rows << " x " << gemm.columns;
      (gemm.weight_gradient ? gradients : head ? heads : layers) += 1;
    }
    EXPECT_GE(gradients, 7 * 3 * 4);
    EXPECT_GE(heads, 2 * 4);
    EXPECT_GE(layers, 2 * 7 * 3 * 2 - 1);
  }
}

TEST(GemmInvariance, OfAdaptersHoldsForTheRowsOfBlocksAlone) {
  SmallRun::Settings settings = in_units(1);
  settings.lora = small_lora();
  const std::vector<RecordedGemm> gemms = gemms_of(settings);
  EXPECT_TRUE(std::ranges::any_of(gemms, [](const RecordedGemm& gemm) { return gemm.weight_gradient; }));
  for (const RecordedGemm& gemm : gemms) {
    if (gemm.rows == settings.spec.vocab) continue;  // the head's
    EXPECT_EQ(gemm.invariance, gemm.weight_gradient ? Invariance::none : Invariance::rows)
        << gemm.rows << " x " << gemm.columns;
  }
}

// Tensor-parallel ranks then have slices of the same layers.
TEST(GemmInvariance, HoldsForAllSlicesWhereSumsAreTakenInSlices) {
  for (const bool adapter : {false, true}) {
    SmallRun::Settings settings = in_units(2);
    if (adapter) settings.lora = small_lora();
    const std::vector<RecordedGemm> gemms = gemms_of(settings);
    EXPECT_GE(gemms.size(), 7U * 3 * 2);
    for (const RecordedGemm& gemm : gemms) EXPECT_EQ(gemm.invariance, Invariance::slices);
  }
}

}  // namespace
}  // namespace ingot::train
