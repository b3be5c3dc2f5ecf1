// Runs a kernel's PTX, one block after another: the warps of a block in turn from barrier to barrier.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tests/backend/gpu/ptx/global_memory.h"
#include "tests/backend/gpu/ptx/kernel.h"

namespace ingot::ptx {

struct LaunchShape {
  int64_t blocks_x = 1, blocks_y = 1;
  int threads = 32;  // per block
  size_t dynamic_shared_bytes = 0;
};

// Divergent lanes run as groups with a program counter each, the lowest first; groups meet where their counters are
// equal. Barriers of the block and operations of a whole warp wait until all lanes of the warp that have not ended are
// there.
//
// Errors: internal, naming block, warp and line of the PTX, for a fault of the kernel: an access outside the
// allocations or not aligned, a race in shared or global memory, a barrier that some threads never reach, too many
// instructions
// (`max_instructions`, of warps); usage for a launch that the kernel does not allow; unsupported for an operand that
// the emulator does not have.
// `executed`, if given, has a number for each instruction, which becomes 1 if a lane executes it.
void run(const Kernel& kernel, const LaunchShape& shape, std::span<const std::byte> parameters, GlobalMemory& memory,
         std::vector<uint8_t>* executed = nullptr, int64_t max_instructions = int64_t{1} << 32);

}  // namespace ingot::ptx
