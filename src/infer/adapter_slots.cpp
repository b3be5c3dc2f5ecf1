#include "infer/adapter_slots.h"

#include <algorithm>

#include "base/error.h"
#include "spec/lora.h"

namespace ingot::infer {

namespace {

// Bytes of a slot's weights, each tensor aligned as in an arena.
size_t slot_bytes(const spec::ModelSpec& model, int64_t rank, DType activation) {
  size_t bytes = 0;
  for (const spec::ParamSpec& p : spec::parameters(model)) {
    if (!p.linear) continue;
    bytes +=
        Arena::footprint(activation, Shape{rank, p.shape[1]}) + Arena::footprint(activation, Shape{p.shape[0], rank});
  }
  return bytes;
}

// Whether the device can use the adapter's weights where they are.
bool in_place(const HostAdapter& adapter, const Device& device) {
  for (const nn::LoraWeights& layer : adapter.weights.layers) {
    if (layer.a) return device.host_visible() || layer.a.device == &device;
  }
  return true;
}

}  // namespace

size_t AdapterSlots::bytes(const spec::ModelSpec& whole, const spec::ModelShard& shard, int64_t slots, int64_t rank,
                           DType activation, bool host_visible) {
  const auto parameters = static_cast<int64_t>(spec::parameters(whole).size());
  const size_t memory = host_visible ? 0 : Arena::footprint(slot_bytes(spec::sizes_of(whole, shard), rank, activation));
  return Arena::footprint(DType::i64, Shape{slots, parameters, 3}) + static_cast<size_t>(slots) * memory;
}

AdapterSlots::AdapterSlots(Device& device, Arena& arena, const spec::ModelSpec& whole, const spec::ModelShard& shard,
                           int64_t slots, int64_t rank, DType activation, Share share)
    : device_(device),
      rank_(rank),
      activation_(activation),
      share_(std::move(share)),
      slots_(static_cast<size_t>(slots)),
      computed_(device.make_event()) {
  const auto parameters = static_cast<int64_t>(spec::parameters(whole).size());
  entries_ = arena.allocate(DType::i64, Shape{slots, parameters, 3});
  const size_t bytes = slot_bytes(spec::sizes_of(whole, shard), rank, activation);
  for (Slot& slot : slots_) {
    slot.filled = device.make_event();
    const size_t row = static_cast<size_t>(parameters) * sizeof(ops::LoraEntry);
    if (!device.host_visible())
      slot.memory = {arena.allocate_bytes(bytes), DType::i8, Shape{static_cast<int64_t>(bytes)}, &device};
    slot.staging = PinnedBuffer(device, row + (device.host_visible() ? 0 : bytes));
  }
  if (!device.host_visible()) copies_.emplace();
}

AdapterSlots::~AdapterSlots() {
  for (Slot& slot : slots_) slot.filled->wait();  // pending copies read the staging memory
}

void AdapterSlots::check(const HostAdapter& adapter) const {
  if (adapter.rank > rank_) {
    throw_error(ErrorKind::usage, "the adapter has rank {}; the engine was configured for rank {}", adapter.rank,
                rank_);
  }
  if (static_cast<int64_t>(adapter.weights.layers.size()) != entries_.shape[1]) {
    throw_error(ErrorKind::usage, "the adapter is for a model with {} parameters; this one has {}",
                adapter.weights.layers.size(), entries_.shape[1]);
  }
  for (const nn::LoraWeights& layer : adapter.weights.layers) {
    if (layer.a && (layer.a.dtype != activation_ || layer.b.dtype != activation_)) {
      throw_error(ErrorKind::usage, "the adapter is in {}; the engine computes in {}", name(layer.a.dtype),
                  name(activation_));
    }
  }
}

int64_t AdapterSlots::acquire(const std::shared_ptr<const HostAdapter>& adapter) {
  size_t oldest = slots_.size();
  for (size_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    if (slot.adapter && slot.adapter->identity == adapter->identity) {
      ++slot.users;
      slot.used = ++clock_;
      return static_cast<int64_t>(i);
    }
    if (slot.users == 0 && (oldest == slots_.size() || slot.used < slots_[oldest].used)) oldest = i;
  }
  if (oldest == slots_.size()) return -1;
  Slot& slot = slots_[oldest];
  slot.filled->wait();
  slot.adapter = share_ ? share_(static_cast<int64_t>(oldest), adapter) : adapter;
  slot.users = 1;
  slot.used = ++clock_;
  fill(oldest, *slot.adapter);
  return static_cast<int64_t>(oldest);
}

void AdapterSlots::place(int64_t index, std::shared_ptr<const HostAdapter> adapter) {
  Slot& slot = slots_[static_cast<size_t>(index)];
  slot.adapter = std::move(adapter);
  fill(static_cast<size_t>(index), *slot.adapter);
  wait(index);
}

void AdapterSlots::release(int64_t index) {
  Slot& slot = slots_[static_cast<size_t>(index)];
  if (--slot.users > 0 || !slot.staging_copy) return;
  copies_->cancel(slot.staging_copy);
  slot.staging_copy = nullptr;
  slot.adapter = nullptr;
}

bool AdapterSlots::ready(int64_t index) {
  Slot& slot = slots_[static_cast<size_t>(index)];
  if (slot.staging_copy) {
    if (!copies_->ended(*slot.staging_copy)) return false;
    send(static_cast<size_t>(index));
  }
  return slot.filled->done();
}

void AdapterSlots::wait(int64_t index) {
  Slot& slot = slots_[static_cast<size_t>(index)];
  if (slot.staging_copy) {
    copies_->wait(*slot.staging_copy);
    send(static_cast<size_t>(index));
  }
  slot.filled->wait();
}

void AdapterSlots::fill(size_t index, const HostAdapter& adapter) {
  Slot& slot = slots_[index];
  const bool copied = !in_place(adapter, device_);
  auto* entries = reinterpret_cast<ops::LoraEntry*>(slot.staging.data());
  slot.staged = row_bytes();
  std::vector<CopyThread::Segment> parts;
  const auto address_of = [&](const Tensor& weight) -> const void* {
    if (!copied) return weight.data;
    parts.push_back({slot.staging.data() + slot.staged, weight.data, weight.bytes()});
    const void* there = static_cast<const std::byte*>(slot.memory.data) + (slot.staged - row_bytes());
    slot.staged += Arena::footprint(weight.bytes());
    return there;
  };
  for (size_t p = 0; p < adapter.weights.layers.size(); ++p) {
    const nn::LoraWeights& layer = adapter.weights.layers[p];
    entries[p] = {};
    if (!layer.a) continue;
    const void* a = address_of(layer.a);
    entries[p] = {a, address_of(layer.b), static_cast<int32_t>(layer.a.rows()), adapter.weights.factor};
  }
  ++uploads_;
  if (parts.empty()) {
    send(index);
  } else {
    slot.staging_copy = copies_->start(std::move(parts));
  }
}

// Starts the copy of the staged data to the device. A batch in flight may still read what the slot had before: the copy
// waits for the work that is queued so far.
void AdapterSlots::send(size_t index) {
  Slot& slot = slots_[index];
  const size_t row = row_bytes();
  slot.staging_copy = nullptr;
  computed_->record(Stream::compute);
  computed_->wait_on(Stream::copy);
  if (slot.staged > row) {
    device_.copy_from_host_async(Stream::copy, slot.memory.data, slot.staging.data() + row, slot.staged - row);
  }
  device_.copy_from_host_async(Stream::copy, static_cast<std::byte*>(entries_.data) + index * row, slot.staging.data(),
                               row);
  slot.filled->record(Stream::copy);
}

}  // namespace ingot::infer
