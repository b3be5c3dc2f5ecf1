// All kernels of this build.
#pragma once

#include <span>

#include "backend/gpu/kernel.h"

namespace ingot::gpu {

// Those of every *.gpu.cpp that is linked, in no particular order.
std::span<const KernelInfo* const> kernels();

}  // namespace ingot::gpu
