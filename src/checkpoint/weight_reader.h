// Reads parameters row by row from any device and storage, converted, for what writes files.
#pragma once

#include <cstdint>
#include <vector>

#include "base/function_ref.h"
#include "base/thread_pool.h"
#include "tensor/device.h"
#include "tensor/weight_set.h"

namespace ingot::checkpoint {

// Rows of a matrix, or a vector as rows of one element or as a single row.
struct RowSource {
  Storage storage = Storage::f32;
  const std::byte* data = nullptr;  // on the device
  int64_t rows = 0;
  int64_t in = 0;
};

RowSource row_source(const Parameter& parameter, bool single_elements);

// Hands out the source's rows in the order order(0), order(1), ..., converted to `storage`, a piece at a time.
// Errors: unsupported, beginning with `what`, for a finite value that `storage` cannot hold.
void read_rows(Device& device, const RowSource& source, Storage storage, FunctionRef<int64_t(int64_t)> order,
               ThreadPool* pool, const std::string& what, FunctionRef<void(std::span<const std::byte>)> write);

}  // namespace ingot::checkpoint
