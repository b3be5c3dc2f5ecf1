// Which weight matrices fp8 and 4-bit block quantisation apply to.
#pragma once

#include "spec/parameter.h"

namespace ingot::spec {

// True for the linear layers inside blocks except the router, whose expert selection is sensitive to small errors.
inline bool is_block_linear(const ParamSpec& p) { return p.linear && p.layer >= 0 && !p.precise; }

}  // namespace ingot::spec
