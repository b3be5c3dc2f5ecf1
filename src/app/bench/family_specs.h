// Small models of every family and of every choice that a family leaves open, for tests.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "spec/model.h"

namespace ingot::models {

struct FamilyCase {
  std::string name;  // of the test
  spec::ModelSpec spec;
  friend void PrintTo(const FamilyCase& c, std::ostream* out) { *out << c.name; }
};

// One or more of each of spec::families().
const std::vector<FamilyCase>& family_cases();

}  // namespace ingot::models
