// Kernels with one fault each, by name. All take the address of 128 floats and run as one block of 128 threads.
#pragma once

#include <vector>

#include "backend/gpu/kernel.h"

namespace ingot::gpu {

std::vector<KernelInfo> faulty_kernels();

}  // namespace ingot::gpu
