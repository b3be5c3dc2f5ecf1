// What an expansion of schemas has still to look at: used by schema_cases.cpp and schema_opposites.cpp only.
#pragma once

#include <set>
#include <vector>

#include "grammar/schema_cases.h"

namespace ingot::grammar {

struct CaseExpander::Alternative {
  Case conditions;
  Conjunction schemas;
};

struct CaseExpander::Pending {
  std::vector<int32_t> literals;  // not looked at yet
  std::set<int32_t> seen;
  std::vector<Alternatives> choices;  // one alternative of each must hold

  void add(int32_t literal) { literals.push_back(literal); }
};

}  // namespace ingot::grammar
