#include "infer/host_adapter.h"

#include <algorithm>
#include <atomic>

#include "base/host_memory.h"
#include "nn/adapter_part.h"
#include "tensor/arena.h"

namespace ingot::infer {

namespace {

uint64_t next_identity() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

}  // namespace

HostAdapter::HostAdapter(std::string its_name, nn::Adapter its_weights, std::shared_ptr<const void> its_owner)
    : name(std::move(its_name)),
      weights(std::move(its_weights)),
      identity(next_identity()),
      owner(std::move(its_owner)) {
  for (const nn::LoraWeights& layer : weights.layers) {
    if (!layer.a) continue;
    rank = std::max(rank, layer.a.rows());
    bytes += layer.a.bytes() + layer.b.bytes();
  }
}

bool is_adapter_name(std::string_view name) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
           c == '.';
  };
  return !name.empty() && name.size() <= 128 && name.front() != '.' && std::all_of(name.begin(), name.end(), allowed);
}

std::shared_ptr<const HostAdapter> shared_adapter(const nn::Adapter* weights) {
  return weights ? std::make_shared<const HostAdapter>("", *weights, nullptr) : nullptr;
}

std::shared_ptr<const HostAdapter> part_of(const HostAdapter& whole, std::span<const spec::HeldParameter> held) {
  const auto memory = std::make_shared<const HostMemory>(nn::adapter_part_bytes(whole.weights, held),
                                                         HostMemory::Pages::small, "an adapter");
  std::byte* next = memory->data();
  const auto allocate = [&](DType type, const Shape& shape) {
    const Tensor tensor{next, type, shape, nullptr};
    next += Arena::footprint(tensor.bytes());
    return tensor;
  };
  const auto part = std::make_shared<HostAdapter>(whole.name, nn::adapter_part(whole.weights, held, allocate), memory);
  part->identity = whole.identity;
  return part;
}

}  // namespace ingot::infer
