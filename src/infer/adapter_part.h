// Adapters of a model whose layers are divided among tensor-parallel ranks.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "infer/host_adapter.h"
#include "spec/model_shard.h"

namespace ingot::infer {

// This rank's part (nn/adapter_part.h), with the identity of the whole, in memory of its own.
std::shared_ptr<const HostAdapter> adapter_part(const HostAdapter& whole, std::span<const spec::HeldParameter> held);

// An adapter as bytes, for other ranks. ErrorKind::internal for one that is not in host memory.
std::vector<std::byte> pack_adapter(const HostAdapter& adapter);
// The tensors are in `bytes`, which outlives the adapter. ErrorKind::internal when these are not the bytes of one.
std::shared_ptr<const HostAdapter> unpack_adapter(std::span<const std::byte> bytes);

}  // namespace ingot::infer
