// An adapter that requests share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "nn/pass.h"

namespace ingot::infer {

// Low-rank weights of a model's linear layers, in the activations' type. They lie in host memory (the tensors' `device`
// is null or one that the host sees), or on the device that computes. Never changed once shared.
struct HostAdapter {
  std::string name;  // what it was registered as; may be empty
  nn::Adapter weights;
  int64_t rank = 0;                   // the largest of its layers
  size_t bytes = 0;                   // of its weights
  uint64_t identity;                  // no two in this process have the same: what the prefix cache tells adapters by
  std::shared_ptr<const void> owner;  // of the memory; may be empty

  HostAdapter(std::string name, nn::Adapter weights, std::shared_ptr<const void> owner);
};

// Whether it may name an adapter: 1 to 128 letters, digits, '_', '-' and '.', and no dot first. Such a name is no path.
bool is_adapter_name(std::string_view name);

// Weights that somebody else keeps for as long as requests use them. Null for null.
std::shared_ptr<const HostAdapter> shared_adapter(const nn::Adapter* weights);

}  // namespace ingot::infer
