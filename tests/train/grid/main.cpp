// The grid of layouts (tests/train/layout_grid.h), for bench/equality.py: layout_grid [FAMILY]. Without a family it
// prints the names of all; with one it compares all combinations of it with one rank, prints a line of JSON for each,
// and exits with 1 if one of them failed or differs.
#include <gtest/gtest.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "tests/train/layout_grid.h"

namespace ingot::train {
namespace {

nlohmann::json compare(GridRuns& runs, const Combination& c) {
  nlohmann::json line = {{"family", c.family_case().name},
                         {"adapter", c.adapter},
                         {"precision", name(c.precision)},
                         {"bitwise", c.determinism == Determinism::bitwise},
                         {"layout", grid_layouts()[c.layout]}};
  try {
    const Comparison result = runs.compare(c);
    EXPECT_TRUE(!result.refused.empty() || result.equal) << c.name() << ": " << result.difference.where;
    line.update({{"refused", result.refused},
                 {"equal", result.equal},
                 {"bits", result.difference.bits},
                 {"loss", result.difference.loss},
                 {"gradient", result.difference.gradient},
                 {"weight", result.difference.weight},
                 {"of_allowed", result.difference.of_allowed},
                 {"where", result.difference.where},
                 {"seconds", result.seconds}});
  } catch (const Error& error) {
    ADD_FAILURE() << c.name() << ": " << error.message();
    line["failed"] = error.message();
  }
  return line;
}

int run(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const std::string family = argc > 1 ? argv[1] : "";
  if (family.empty()) {
    for (const models::FamilyCase& each : models::family_cases()) std::cout << each.name << "\n";
    return 0;
  }
  GridRuns runs;
  int tried = 0;
  for (const Combination& c : layout_grid()) {
    if (c.family_case().name != family) continue;
    std::cout << compare(runs, c).dump() << std::endl;
    ++tried;
  }
  EXPECT_GT(tried, 0) << "no family is called " << family;
  return testing::UnitTest::GetInstance()->ad_hoc_test_result().Failed() ? 1 : 0;
}

}  // namespace
}  // namespace ingot::train

int main(int argc, char** argv) { return ingot::train::run(argc, argv); }
