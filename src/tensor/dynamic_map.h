// The 8-bit data type of optimizer states: dynamic tree quantisation (Dettmers et al. 2022, arXiv 2110.02861, "8-bit
// Optimizers via Block-wise Quantization"). 256 values in [-1, 1] or [0, 1], in ascending order: seven decades, of
// which the higher ones are divided more finely, 0 and 1. Decade i, from 0, has 2^i equal cells for each sign (2^(i+1)
// without a sign) between 0.1 and 1 times 10^(i-6); its values are their midpoints. The same as bitsandbytes'
// create_dynamic_map.
#pragma once

#include <array>

namespace ingot {

inline constexpr int dynamic_map_decades = 7;

// Value of a code. A block of zeros has the scale 0, so that memory of zeros holds zeros.
const std::array<float, 256>& dynamic_map(bool is_signed);

}  // namespace ingot
