// Reads parameters from any device and storage, converted to the form that a file has, for what writes files.
#pragma once

#include <string>

#include "base/function_ref.h"
#include "base/thread_pool.h"
#include "checkpoint/placement.h"
#include "tensor/device.h"
#include "tensor/weight_set.h"

namespace ingot::checkpoint {

// Hands out the parameter's bytes as `placement` has them (rows in the file's order, transposed, plus its offset), in
// `storage`, a piece at a time and in order.
// Errors: unsupported, beginning with `what`, for a finite value that `storage` cannot hold.
void read_parameter(Device& device, const Parameter& parameter, const Placement& placement, Storage storage,
                    ThreadPool* pool, const std::string& what, FunctionRef<void(std::span<const std::byte>)> write);

}  // namespace ingot::checkpoint
