// The CPU's ops, one registering function a noun.
#pragma once

#include "backend/cpu/isa.h"

namespace ingot::cpu {

void register_elementwise(ops::Registry& registry, Levels levels);

}  // namespace ingot::cpu
