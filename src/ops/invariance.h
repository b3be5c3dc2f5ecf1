// Which calls of a gemm give an element of the result the same bits. Letters as in ops/matmul.h.
#pragma once

#include <cstdint>

namespace ingot::ops {

// What the order of an element's sum does not depend on. Vendors' libraries choose better algorithms, and may split
// sums, where it may depend on more; other implementations are always as with `slices`.
enum class Invariance : uint8_t {
  slices,  // M and N: any slice of rows or columns of a result has the same bits
  rows,    // M: any slice of rows has the same bits
  none     // calls that must agree have the same M, N and K
};

}  // namespace ingot::ops
