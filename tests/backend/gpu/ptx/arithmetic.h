// Arithmetic, comparisons and conversions, by opcode: PTX ISA, "Integer Arithmetic Instructions", "Floating-Point
// Instructions", "Comparison and Selection Instructions", "Logic and Shift Instructions", "cvt".
#pragma once

#include <string>
#include <unordered_map>

#include "tests/backend/gpu/ptx/lanewise.h"

namespace ingot::ptx {

// All lane-wise operations but cvt between integers: {"add.s32", ...}.
const std::unordered_map<std::string, Operation>& arithmetic();

// cvt.D.S between integer types. Its operands' registers may be wider than the types (PTX ISA, "Operand Size Exceeding
// Instruction-Type Size"). `flags` of the instruction is what this returns for "cvt.D.S"; -1 for other opcodes.
int integer_conversion(std::string_view opcode);
void convert_integers(const Instruction& instruction, Warp& warp, uint32_t active);

// The value of a small float: a sign, `exponent_bits` and `mantissa_bits` of `code`. If `finite` only the code of all
// ones besides the sign is NaN, and there is no infinity (e4m3).
double small_float(uint32_t code, int exponent_bits, int mantissa_bits, bool finite = false);
// The code of the nearest such value, ties to even, overflow to infinity, and 0x7fff for NaN.
uint16_t to_small_float(float value, int exponent_bits, int mantissa_bits);

}  // namespace ingot::ptx
