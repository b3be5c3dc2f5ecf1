// A rank's part of an adapter, of a model that several ranks share.
#pragma once

#include <cstddef>
#include <span>

#include "base/function_ref.h"
#include "nn/pass.h"
#include "spec/model_shard.h"

namespace ingot::nn {

// Of layers in `held`, copies of what spec::held_adapter says, in tensors that `allocate` makes in host memory.
// ErrorKind::internal for an adapter that is not in host memory.
Adapter adapter_part(const Adapter& whole, std::span<const spec::HeldParameter> held,
                     FunctionRef<Tensor(DType, const Shape&)> allocate);
// What an arena needs for these.
size_t adapter_part_bytes(const Adapter& whole, std::span<const spec::HeldParameter> held);

}  // namespace ingot::nn
