// A warp's state, and an instruction as a function of it.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tests/backend/gpu/ptx/global_memory.h"
#include "tests/backend/gpu/ptx/matrix_products.h"
#include "tests/backend/gpu/ptx/shared_memory.h"

namespace ingot::ptx {

constexpr uint32_t all_lanes = 0xffffffff;

// cp.async of one thread: 16 bytes of shared memory from `source_bytes` (0 or 16) bytes of global memory, else zeros.
// They are made when their thread waits for them, the latest moment that is possible.
struct AsyncCopy {
  uint32_t to = 0;
  uint64_t from = 0;
  uint32_t source_bytes = 0;
  int group = 0;
};

struct AsyncCopies {
  std::vector<AsyncCopy> pending;
  int committed = 0;  // groups
};

// Registers are arrays over lanes at an offset in `registers`: 32 values of 2, 4 or 8 bytes; a predicate is one
// uint32_t with a bit for each lane. Constants and special registers have such arrays too.
struct Warp {
  std::byte* registers = nullptr;
  size_t register_bytes = 0;
  int index = 0;        // in the block
  uint32_t exists = 0;  // lanes that are threads of the block
  uint32_t live = 0;    // of them, those that have not ended
  std::span<const std::byte> parameters;
  GlobalMemory* global = nullptr;
  SharedMemory* shared = nullptr;
  std::byte* local = nullptr;  // `local_bytes` for each lane
  size_t local_bytes = 0;
  std::array<AsyncCopies, lanes> copies;
  MatrixProducts products;

  template <class Bits>
  Bits* at(uint32_t offset) const {
    return reinterpret_cast<Bits*>(registers + offset);
  }
  Accessor accessor(int lane) const { return {index, lane, false}; }
  int thread(int lane) const { return index * lanes + lane; }  // in the block
};

struct Instruction;
using Handler = void (*)(const Instruction&, Warp&, uint32_t active);

// What the loop over instructions does itself.
enum class Control : uint8_t {
  none,           // `run`
  branch,         // bra
  exit,           // ret
  block_barrier,  // bar.sync 0
  warp_wide,      // `run`, by all lanes of the warp together
};

struct Instruction {
  Handler run = nullptr;
  const uint32_t* at = nullptr;  // offsets of the operands' arrays, in the order of the text, vectors flattened
  uint64_t literal = 0;          // the offset of an address, or the count of a wait_group
  uint32_t guard = 0;            // offset of the predicate
  uint32_t target = 0;           // of a branch
  Control control = Control::none;
  bool guarded = false, guard_negated = false;
  bool leader = false;        // a branch leads here
  uint8_t items = 1;          // of a vector of ld, st, mov and wgmma
  uint8_t flags = 0;          // see the operation
  uint8_t bytes[2] = {0, 0};  // of the registers of cvt between integers: destination, source
  int line = 0;
};

// Calls function(lane) for each active lane.
template <class Function>
void for_each_lane(uint32_t active, Function function) {
  for (; active != 0; active &= active - 1) function(std::countr_zero(active));
}

}  // namespace ingot::ptx
