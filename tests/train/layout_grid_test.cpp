// Ten steps in every layout equal those of one rank (tests/train/layout_grid.h). A tenth of the grid is tried here,
// all of it by bench/equality.py.
#include "tests/train/layout_grid.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

namespace ingot::train {
namespace {

class LayoutSampleOfFamily : public testing::TestWithParam<size_t> {};

TEST_P(LayoutSampleOfFamily, HasTheResultsOfOneRank) {
  GridRuns runs;
  for (const Combination& c : layout_sample()) {
    if (c.family != GetParam()) continue;
    const Comparison result = runs.compare(c);
    EXPECT_TRUE(!result.refused.empty() || result.equal)
        << c.name() << ": " << result.difference.of_allowed << " times the rounding, " << result.difference.where;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, LayoutSampleOfFamily, testing::Range(size_t{0}, models::family_cases().size()),
                         [](const auto& info) { return models::family_cases()[info.param].name; });

// Those that are not refused.
TEST(LayoutSample, HasEveryLayoutFamilyTypeDeterminismAndKindOfTraining) {
  std::set<size_t> families, layouts;
  std::set<std::string> kinds;
  for (const Combination& c : layout_sample()) {
    if (!refusal_of(c).empty()) continue;
    families.insert(c.family);
    layouts.insert(c.layout);
    kinds.insert(fmt::format("{} {} {}", c.adapter, name(c.precision), static_cast<int>(c.determinism)));
  }
  EXPECT_EQ(families.size(), models::family_cases().size());
  EXPECT_EQ(layouts.size(), grid_layouts().size());
  EXPECT_EQ(kinds.size(), 8U);
}

// By models without experts that ranks can divide; or with fewer key/value heads than ranks, or heads that are
// normalised together; and equal bits where keys and values are gathered or pass round a
// ring.
TEST(LayoutSample, IsRefusedOnlyWhereHeadsOrExpertsCannotBeDivided) {
  size_t refused = 0;
  for (const Combination& c : layout_grid()) {
    if (c.adapter || c.precision != Precision::fp32) continue;
    const std::string reason = refusal_of(c);
    if (reason.empty()) continue;
    ++refused;
    const spec::ModelSpec& model = c.family_case().spec;
    const std::string& layout = grid_layouts()[c.layout];
    const auto divides = [&](const char* axis) { return layout.find(axis) != std::string::npos; };
    const bool heads = (divides("tp:") || divides("cp:")) && max_slices(model) < 4;
    const bool experts = divides("ep:") && !models::can_be_cut(model, {.ep = 2});
    const bool bits = divides("cp_comm_type") && c.determinism == Determinism::bitwise;
    EXPECT_TRUE(heads || experts || bits) << c.name() << ": " << reason;
  }
  EXPECT_GT(refused, 0U);
}

}  // namespace
}  // namespace ingot::train
