// An adapter as bytes, for the other ranks of its model.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "infer/host_adapter.h"

namespace ingot::infer {

// ErrorKind::internal for an adapter that is not in host memory.
std::vector<std::byte> pack_adapter(const HostAdapter& adapter);
// The tensors are in `bytes`, which outlives the adapter. ErrorKind::internal when these are not the bytes of one.
std::shared_ptr<const HostAdapter> unpack_adapter(std::span<const std::byte> bytes);

}  // namespace ingot::infer
