// NumPy's sum of doubles, to the bit: pairwise (Higham 1993, SIAM J. Sci. Comput. 14), eight sums side by side in
// blocks of up to 128.
#pragma once

#include <span>

namespace ingot {

double numpy_sum(std::span<const double> values);

}  // namespace ingot
