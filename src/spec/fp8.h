// Which matrices fp8 is for.
#pragma once

#include "spec/model.h"

namespace ingot::spec {

// A linear layer's matrix inside a block, save the router, whose choices small errors would change.
inline bool in_fp8(const ParamSpec& p) { return p.linear && p.layer >= 0 && p.role != Role::router; }

}  // namespace ingot::spec
