// Host time of op calls: argument checks and dispatch, without the kernels.
#pragma once

#include "ops/registry.h"
#include "ops/testing/op_table.h"

namespace ingot::ops::testing {

// The same implementations with kernels that do nothing. They decline the same calls.
ops::Registry without_kernels(const ops::Registry& registry);

// Processor seconds of the calling thread per call of the case, with the context's registry: the minimum over at least
// five batches of calls that together take `seconds`. ErrorKind::unsupported when no implementation supports the call.
double host_seconds(ops::Context& context, const OpCase& op_case, double seconds);

}  // namespace ingot::ops::testing
