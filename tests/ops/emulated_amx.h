// Attention of the level amx, whose tile registers are emulated, as one more implementation.
#pragma once

#include "ops/registry.h"

namespace ingot {

// Adds "emulated_amx" after the implementations of attention that are there. Only on machines with the level avx512,
// whose instructions the source has besides tiles; elsewhere without effect.
void add_emulated_amx(ops::Registry& registry);

}  // namespace ingot
