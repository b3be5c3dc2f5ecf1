// How far rounding errors of a whole model can add up.
#pragma once

#include <cstdint>

#include "spec/model.h"

namespace ingot::spec {

// The longest chain of fp32 additions from token ids to a gradient: the length argument of tolerance()
// (tensor/tolerance.h).
int64_t chain_length(const ModelSpec& model);

}  // namespace ingot::spec
