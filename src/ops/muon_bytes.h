// Scratch bytes of Muon. Depends on no tensor code: the planner calls this too.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ingot::ops {

// Upper bounds on the bytes that `newton_schulz` and `muon` of a [rows, columns] matrix take from the scratch arena.
// The iterated matrices have `iterate_bytes` bytes per element.
size_t newton_schulz_bytes(int64_t rows, int64_t columns, size_t iterate_bytes);
size_t muon_bytes(int64_t rows, int64_t columns, size_t iterate_bytes);

}  // namespace ingot::ops
