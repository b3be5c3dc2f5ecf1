// A LoRA adapter that requests share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "nn/pass.h"
#include "spec/model_shard.h"

namespace ingot::infer {

// LoRA weights of a model's linear layers, in the dtype of the activations. They are in host memory (the tensors'
// `device` is null or one with host-visible memory), or on the device that computes. Immutable once shared.
struct HostAdapter {
  std::string name;  // the registered name; may be empty
  nn::Adapter weights;
  int64_t rank = 0;                   // max over its layers
  size_t bytes = 0;                   // of its weights
  uint64_t identity;                  // unique in this process; the prefix cache distinguishes adapters by it
  std::shared_ptr<const void> owner;  // keeps the weights' memory alive; may be null

  HostAdapter(std::string name, nn::Adapter weights, std::shared_ptr<const void> owner);
};

// Whether this is a valid adapter name: 1 to 128 letters, digits, '_', '-' and '.', not starting with a dot. Such a
// name cannot be a path.
bool is_adapter_name(std::string_view name);

// Wraps weights that the caller keeps alive as long as requests use them. Null for null.
std::shared_ptr<const HostAdapter> shared_adapter(const nn::Adapter* weights);

// A rank's part of an adapter (nn/adapter_part.h), with the identity of the whole, in memory of its own.
std::shared_ptr<const HostAdapter> part_of(const HostAdapter& whole, std::span<const spec::HeldParameter> held);

}  // namespace ingot::infer
