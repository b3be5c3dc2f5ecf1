// The grid of layouts: every family of models in every layout of ranks, in fp32 and bf16, full training and adapters,
// bitwise and to rounding, compared with one rank.
#pragma once

#include <string>
#include <vector>

#include "tests/train/layouts.h"
#include "train/recipe.h"

namespace ingot::train {

// As `parallel` of a recipe has them. A further kind of parallelism is a further line of the table.
const std::vector<std::string>& grid_layouts();

struct Combination {
  size_t family = 0;  // index in models::family_cases()
  bool adapter = false;
  Precision precision = Precision::fp32;
  Determinism determinism = Determinism::bitwise;
  size_t layout = 0;  // index in grid_layouts()

  const models::FamilyCase& family_case() const { return models::family_cases()[family]; }
  std::string name() const;
};
// All, ordered by family, and within one by what is equal of the runs on one rank.
std::vector<Combination> layout_grid();
// A tenth of them: every eleventh. 11 is coprime with the numbers of all that is combined.
std::vector<Combination> layout_sample();

// A combination as a recipe. Layouts that divide layers or tokens have `parallel.units`, with `determinism: bitwise`:
// as many as the family allows (max_slices), or as the layout needs. Errors: usage where the program refuses the
// layout.
Recipe recipe_of(const Combination& combination);
// Why the program refuses it, for this recipe or this model; empty where it does not.
std::string refusal_of(const Combination& combination);

// Ten steps in the layout and on one rank.
struct Comparison {
  std::string refused;  // refusal_of(); then nothing else is set
  Difference difference;
  double seconds = 0;  // of the run in the layout
  bool equal = false;  // in bits where that is promised, else to rounding
};
// Runs on one rank are made once for all combinations that have them in common.
class GridRuns {
 public:
  Comparison compare(const Combination& combination);

 private:
  std::map<std::string, Outcome> one_rank_;
};

}  // namespace ingot::train
