// Operations of a warpgroup, four warps of which the first one's number is a multiple of 4: PTX ISA, "Asynchronous
// Warpgroup Level Matrix Instructions" and "fence.proxy.async". Each warp computes its 16 of the 64 rows.
#pragma once

#include <string_view>

#include "tests/backend/gpu/ptx/warp.h"

namespace ingot::ptx {

// N of wgmma.mma_async.sync.aligned.m64nNk16.f32.bf16.bf16; 0 for other opcodes.
int product_columns(std::string_view opcode);

// Flags of an instruction wgmma.mma_async.
constexpr uint8_t a_in_registers = 1, b_transposed = 2;

// wgmma.mma_async: sums, a, b, scale-d. A matrix in shared memory has 128-byte swizzle and begins where its pattern
// does; error unsupported otherwise. Errors: internal, for registers whose values changed after the last wgmma.fence.
// Not found are writes of an equal value, and a missing fence before a product that overwrites sums which were only
// read.
void issue_product(const Instruction& instruction, Warp& warp, uint32_t active);
// wgmma.fence, wgmma.commit_group and wgmma.wait_group `literal`. Waiting fails (internal) where registers of the
// products were written since they were issued. Registers of sums that are read too early hold NaN.
void fence_registers(const Instruction& instruction, Warp& warp, uint32_t active);
void commit_products(const Instruction& instruction, Warp& warp, uint32_t active);
void wait_products(const Instruction& instruction, Warp& warp, uint32_t active);
// fence.proxy.async of each active lane.
void fence_proxy(const Instruction& instruction, Warp& warp, uint32_t active);

}  // namespace ingot::ptx
