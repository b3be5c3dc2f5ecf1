// A warp's part of the matrix products of its warpgroup that are in flight: PTX ISA, "Asynchronous Warpgroup Level
// Matrix Instructions". They are made when their warp waits for them, the latest moment that is possible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace ingot::ptx {

struct Instruction;

struct MatrixProduct {
  const Instruction* instruction = nullptr;
  std::vector<uint32_t> a;              // fragments in registers, [4][lanes]; empty: in shared memory
  uint64_t a_matrix = 0, b_matrix = 0;  // descriptors
  bool accumulates = false;
  int group = 0;
};

// The sums of products in flight. Meanwhile their registers hold `in_flight_bits`.
struct SumsInFlight {
  std::vector<uint32_t> values;  // [registers][lanes], bits of f32
  int products = 0;
};

struct MatrixProducts {
  std::vector<MatrixProduct> pending;
  std::map<uint32_t, SumsInFlight> sums;  // by the offset of the first register
  int committed = 0;                      // groups
  std::vector<std::byte> fenced;          // the warp's registers at the last wgmma.fence; empty: there was none
  uint64_t issued = 0;                    // a hash of all products so far; 0: none
};

}  // namespace ingot::ptx
