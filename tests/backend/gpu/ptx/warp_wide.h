// Operations of a whole warp: barriers, shuffles, votes and matrices. PTX ISA, "bar.warp.sync", "shfl.sync",
// "vote.sync", "Warp Level Matrix Multiply-Accumulate Instructions".
#pragma once

#include <string_view>

#include "tests/backend/gpu/ptx/lanewise.h"

namespace ingot::ptx {

// The operation of an opcode that all lanes of a warp run together, or one without a handler. The letters of its form
// are those of lanewise.h for the operands in the order of the text, with vectors flattened and p after the register in
// "d|p".
//   bar.warp.sync, shfl.sync.{up,down,bfly,idx}.b32, vote.sync.ballot.b32: for all 32 lanes (error unsupported
//   otherwise) ldmatrix.sync.aligned.m8n8.x4[.trans].shared.b16 mma.sync.aligned.m16n8k16.row.col.f32.{bf16,f16},
//   m16n8k32 of e4m3 and e5m2
// A device sums the products of mma in an order and with a precision of its own; here they are summed in double and
// rounded once.
Operation warp_wide_operation(std::string_view opcode);

}  // namespace ingot::ptx
