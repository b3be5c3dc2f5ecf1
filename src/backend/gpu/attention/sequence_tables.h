// What cuDNN before 9.24 needs to know of the sequences in a pack, from the offsets of their first tokens.
#pragma once

#include <cstdint>

#include "backend/gpu/number.h"

namespace ingot::ops {
struct Context;
}

namespace ingot::gpu {

// Device memory; S sequences. A row of queries has `q_row` elements, one of keys or values `kv_row`.
struct SequenceTables {
  const int32_t* offsets;  // [S + 1], given: in tokens
  int32_t* lengths;        // [S], assigned: in tokens
  int32_t* q_offsets;      // [S + 1], assigned: in elements of queries
  int32_t* kv_offsets;     // [S + 1], assigned: in elements of keys
  int64_t sequences, q_row, kv_row;
};

// Assigns them in the compute stream. The offsets in elements must be below 2^31.
void assign_sequence_tables(ops::Context& context, const SequenceTables& tables);

}  // namespace ingot::gpu
