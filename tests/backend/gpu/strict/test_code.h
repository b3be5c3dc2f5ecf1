// Code objects without code, for the strict driver: what its GPU runs are the simulated kernels of the same names.
#pragma once

#include <span>

#include "backend/gpu/runtime/code_objects.h"

namespace ingot::gpu {

// For every source file with kernels: PTX for sm_80, and an AMD code object for gfx90a, gfx942, gfx950 and gfx1100.
std::span<const CodeObject> test_code();

}  // namespace ingot::gpu
