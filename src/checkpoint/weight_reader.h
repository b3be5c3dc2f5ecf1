// Reads parameters of any device and storage type, converted to a file's layout. Used by the exporters.
#pragma once

#include <string>

#include "base/function_ref.h"
#include "base/thread_pool.h"
#include "checkpoint/placement.h"
#include "tensor/device.h"
#include "tensor/weight_set.h"

namespace ingot::checkpoint {

// Passes the parameter's bytes to `write` in the layout of `placement` (row order of the file, transposed, plus its
// offset), as `storage`, in consecutive chunks.
// Errors: unsupported, beginning with `what`, for a finite value that `storage` cannot represent.
void read_parameter(Device& device, const Parameter& parameter, const Placement& placement, StorageType storage,
                    ThreadPool* pool, const std::string& what, FunctionRef<void(std::span<const std::byte>)> write);

}  // namespace ingot::checkpoint
