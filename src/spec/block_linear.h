// Which matrices fp8 and 4-bit blocks are for.
#pragma once

#include "spec/model.h"

namespace ingot::spec {

// A linear layer's matrix inside a block, save the router, whose choices small errors would change.
inline bool is_block_linear(const ParamSpec& p) { return p.linear && p.layer >= 0 && p.role != Role::router; }

}  // namespace ingot::spec
