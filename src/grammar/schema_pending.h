// The work list of a schema expansion: used by schema_cases.cpp and schema_opposites.cpp only.
#pragma once

#include <memory>
#include <set>
#include <vector>

#include "grammar/schema_cases.h"

namespace ingot::grammar {

struct DnfExpander::Alternative {
  Case conditions;
  Conjunction schemas;
};

struct DnfExpander::Pending {
  std::vector<int32_t> literals;  // to be processed
  std::set<int32_t> seen;
  std::vector<std::shared_ptr<const Alternatives>> choices;  // for each, one of the alternatives must hold

  void add(int32_t literal) { literals.push_back(literal); }
  void choose(Alternatives ways) { choices.push_back(std::make_shared<const Alternatives>(std::move(ways))); }
  size_t size() const { return literals.size() + seen.size() + choices.size(); }
};

}  // namespace ingot::grammar
