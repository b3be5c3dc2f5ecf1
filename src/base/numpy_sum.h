// NumPy's sum of doubles, bit for bit: pairwise (Higham 1993, SIAM J. Sci. Comput. 14), with eight partial sums in
// blocks of up to 128.
#pragma once

#include <span>

namespace ingot {

double numpy_sum(std::span<const double> values);

}  // namespace ingot
