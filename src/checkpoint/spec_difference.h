// In which hyper-parameter two models differ.
#pragma once

#include <string>

#include "spec/model.h"

namespace ingot::checkpoint {

// The first member that differs, as the members of spec/ are named: "norm", "layer 3: attention.window"; empty if the
// models are equal.
std::string first_difference(const spec::ModelSpec& a, const spec::ModelSpec& b);

}  // namespace ingot::checkpoint
