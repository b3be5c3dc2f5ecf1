// Cases of optimizer updates with 8-bit states (ops/blockwise.h).
#pragma once

#include <vector>

#include "ops/testing/op_table.h"

namespace ingot::ops::testing {

// Numbers of very different sizes, as optimizer states are.
Fill spread();

// An f32 operand of a case, role inout, that becomes codes.
struct CodedOperand {
  size_t operand;
  bool is_signed = true;
  double scale = 0.1;  // the largest scale at the start
};

// The case with u8 codes in place of `states`; their scales become its last operands, in this order. The reference
// decodes the states before that of `plain` and encodes them after it, by trying all codes; with `halted` it leaves
// them alone.
OpCase with_coded_states(OpCase plain, const std::vector<CodedOperand>& states, bool halted = false);

}  // namespace ingot::ops::testing
