#include "train/non_finite_locator.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "ops/attention.h"
#include "ops/elementwise.h"
#include "ops/moe.h"
#include "train/sharded_weights.h"

namespace ingot::train {

namespace {

// A floating-point number is finite when its exponent is not all ones.
template <class Bits>
bool all_finite(const void* data, int64_t count, Bits exponent) {
  const Bits* bits = static_cast<const Bits*>(data);
  return std::none_of(bits, bits + count, [=](Bits b) { return (b & exponent) == exponent; });
}

}  // namespace

NonFiniteLocator::NonFiniteLocator(Device& device, const spec::ModelSpec& model, const WeightSet& weights,
                                   const OptimizerState& optimizer_state, const ShardedWeights* sharded)
    : device_(device), table_(spec::parameters(model)), weights_(weights), sharded_(sharded) {
  if (sharded_ == nullptr) add_weights();
  for (const TrainedParameter& t : optimizer_state.tensors()) {
    if (optimizer_state.has_whole_weights()) add(t.weight.data, t.weight.bytes(), t.name, false);
    const bool shared = t.sum || optimizer_state.share().divides_gradients();  // memory shared by all tensors
    if (!shared) add(t.gradient.data, t.gradient.bytes(), t.name, true);
    if (t.tied_gradient) add(t.tied_gradient.data, t.tied_gradient.bytes(), t.name, true);
  }
}

void NonFiniteLocator::add_weights() {
  for (size_t i = 0; i < table_.size(); ++i) {
    const Parameter& p = weights_.parameters[i];
    if (sharded_ != nullptr) {
      if (!sharded_->is_there(i)) continue;
      sharded_begins_.push_back(static_cast<const std::byte*>(p.matrix ? p.matrix.data : p.vector.data));
    }
    if (p.matrix) {
      add(p.matrix.data, static_cast<size_t>(p.matrix.out) * row_bytes(p.matrix.storage, p.matrix.in), table_[i].name,
          false);
    } else if (p.vector) {
      add(p.vector.data, p.vector.bytes(), table_[i].name, false);
    }
  }
}

void NonFiniteLocator::add(const void* data, size_t bytes, const std::string& name, bool gradient) {
  const auto* begin = static_cast<const std::byte*>(data);
  memory_[begin] = {begin + bytes, name, gradient};
}

const NonFiniteLocator::NamedMemory* NonFiniteLocator::find(const Tensor& tensor) const {
  const auto* begin = static_cast<const std::byte*>(tensor.data);
  const auto after = memory_.upper_bound(begin);
  if (after == memory_.begin()) return nullptr;
  const NamedMemory& candidate = std::prev(after)->second;
  return begin < candidate.end ? &candidate : nullptr;
}

bool NonFiniteLocator::is_finite(const Tensor& tensor) const {
  const void* data = tensor.data;
  std::vector<std::byte> copy;
  if (!device_.host_visible()) {
    copy.resize(tensor.bytes());
    device_.copy_to_host(copy.data(), tensor.data, copy.size());
    data = copy.data();
  }
  switch (tensor.dtype) {
    case DType::f32: return all_finite<uint32_t>(data, tensor.elements(), 0x7F800000U);
    case DType::bf16: return all_finite<uint16_t>(data, tensor.elements(), 0x7F80U);
    case DType::f16: return all_finite<uint16_t>(data, tensor.elements(), 0x7C00U);
    default: return true;
  }
}

void NonFiniteLocator::ran(const char* op, std::span<const Tensor> tensors, const ops::OpWork&) {
  if (!found_.empty()) return;
  // Around the experts too: expert-parallel ranks run other ops between these.
  const auto begins = {ops::Attention::name, ops::AttentionBackward::name, ops::CombineRows::name,
                       ops::CombineRowsBackward::name};
  if (std::ranges::find(begins, std::string_view(op)) != begins.end())
    place_ = {place_.position, place_.section + 1, 0};
  // Tensor-parallel ranks run the same ops, except that one of them adds the bias of a sum over ranks.
  if (std::string_view(op) != ops::AddBias::name) ++place_.op;
  if (sharded_ != nullptr) {
    for (const std::byte* begin : std::exchange(sharded_begins_, {})) memory_.erase(begin);
    add_weights();
  }
  std::string with;
  bool broken = false;            // an output or an input is not finite
  bool named = false;             // a parameter is among the tensors
  bool broken_parameter = false;  // and that parameter is not finite itself
  for (const Tensor& tensor : tensors) {
    const NamedMemory* k = find(tensor);
    if (k && !k->gradient) {
      // Of several parameters, the non-finite one, else the first: a layer's weight rather than its adapter's.
      const bool whole = is_finite(tensor);
      if (!broken_parameter && (!named || !whole)) with = last_ = k->name;
      named = true;
      broken_parameter = broken_parameter || !whole;
    } else {
      if (k && !broken_parameter) with = "the gradient of " + k->name;
      broken = broken || !is_finite(tensor);
    }
  }
  // A parameter alone is no fault: an embedding row that no token looks up may hold anything.
  if (!broken) return;
  place_found_ = place_;
  if (!with.empty()) {
    found_ = fmt::format("{} with {}{}", op, with, broken_parameter ? ", whose values are not finite" : "");
  } else {
    found_ = last_.empty() ? std::string(op) : fmt::format("{} after {}", op, last_);
  }
}

}  // namespace ingot::train
