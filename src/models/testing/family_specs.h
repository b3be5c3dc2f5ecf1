// Small model specifications for tests: every family, and every option within a family.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "spec/model.h"
#include "spec/model_shard.h"

namespace ingot::models {

struct FamilyCase {
  std::string name;  // used as the test's name
  spec::ModelSpec spec;
  std::vector<std::string> linear_layers;  // those that LoRA may target besides the head, as PEFT names them
  friend void PrintTo(const FamilyCase& c, std::ostream* out) { *out << c.name; }
};

// One or more specifications of each of spec::families().
const std::vector<FamilyCase>& family_cases();

// Whether ranks can have parts like this one (spec::check).
bool can_be_cut(const spec::ModelSpec& spec, const spec::ModelShard& part);

}  // namespace ingot::models
