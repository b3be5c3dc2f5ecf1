// Loads, stores, atomics and asynchronous copies: PTX ISA, "Data Movement and Conversion Instructions".
#pragma once

#include <string_view>

#include "tests/backend/gpu/ptx/lanewise.h"

namespace ingot::ptx {

// A load or store as its opcode says: the handler moves `items` values of `item_bytes` between registers and
// consecutive addresses. Values that are narrower than their registers are extended, or are the registers' lower parts.
struct Movement {
  bool is_load = false;
  int items = 1;
  int item_bytes = 0;
  bool is_signed = false;
  int address_bytes = 8;  // of the register with the address: 4 in shared memory
  enum class Space { global, shared, local, parameter } space = Space::global;
};

// True for "ld...." and "st...." of known spaces and types; weak ones, with cache operators. Without a state space the
// address is generic, which our kernels use for global memory only (nvcc writes "cvta" for any other).
bool parse_movement(std::string_view opcode, Movement& movement);
Handler movement_handler(const Movement& movement, int register_bytes);

// atom.shared.add.u64 d, [a], b
void atomic_add_shared(const Instruction& instruction, Warp& warp, uint32_t active);
// atom.{acq_rel,relaxed}.gpu.global.add.s32 d, [a], b
template <bool is_ordered>
void atomic_add_global(const Instruction& instruction, Warp& warp, uint32_t active);

// cp.async.cg.shared.global [to], [from], 16, source bytes; then commit_group and wait_group `literal`.
void copy_async(const Instruction& instruction, Warp& warp, uint32_t active);
void commit_copies(const Instruction& instruction, Warp& warp, uint32_t active);
void wait_copies(const Instruction& instruction, Warp& warp, uint32_t active);

// mov.b32 and mov.b64: d, {a, b} and {d, e}, a with vectors of halves, the lower one first.
template <class Half, class Whole>
void pack_halves(const Instruction& instruction, Warp& warp, uint32_t active) {
  const auto* low = warp.at<const Half>(instruction.at[1]);
  const auto* high = warp.at<const Half>(instruction.at[2]);
  Whole result[lanes];
  for (int lane = 0; lane < lanes; ++lane) {
    result[lane] = low[lane] | static_cast<Whole>(static_cast<Whole>(high[lane]) << 8 * sizeof(Half));
  }
  store_lanes(warp.at<Whole>(instruction.at[0]), result, active);
}
template <class Half, class Whole>
void unpack_halves(const Instruction& instruction, Warp& warp, uint32_t active) {
  const auto* from = warp.at<const Whole>(instruction.at[2]);
  Half low[lanes], high[lanes];
  for (int lane = 0; lane < lanes; ++lane) {
    low[lane] = static_cast<Half>(from[lane]);
    high[lane] = static_cast<Half>(from[lane] >> 8 * sizeof(Half));
  }
  store_lanes(warp.at<Half>(instruction.at[0]), low, active);
  store_lanes(warp.at<Half>(instruction.at[1]), high, active);
}

}  // namespace ingot::ptx
