// Sums over a dimension that tensor parallelism cuts, in a number of slices that does not depend on the number of ranks
// (TensorParallel::slices, `parallel.units` in recipes): every slice is summed apart in fp32, and the slices' sums are
// added in one binary tree, first neighbours, then neighbouring pairs. Each rank has a subtree, so the bits are those
// of one rank that has all slices.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/function_ref.h"
#include "nn/pass.h"
#include "spec/slice.h"

namespace ingot::nn {

// sum f32 (any shape) is assigned the sum over all slices of all of pass.tp's ranks. `term` assigns to `out`, of sum's
// shape, what slice number `slice` of this rank's TensorParallel::own_slices adds up to; ranks call it together.
void sum_slices(Pass& pass, const Tensor& sum, FunctionRef<void(int64_t slice, const Tensor& out)> term);
// Its scratch bytes for a sum of `elements`, without what `term` takes.
size_t sum_slices_bytes(int64_t elements, const PassShape& shape);

// Columns of x, of its matrix [R, N]: x itself if they are all, else a copy in scratch memory.
Tensor columns_of(Pass& pass, const Tensor& x, spec::Range columns);

}  // namespace ingot::nn
