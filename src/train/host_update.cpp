#include "train/host_update.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.h"
#include "ops/elementwise.h"
#include "train/optimizer_state.h"

namespace ingot::train {

namespace {

constexpr size_t decision_bytes = 3 * sizeof(double);

}  // namespace

HostUpdate::HostUpdate(Device& device, Device& host, int64_t chunk)
    : device_(device), host_(host), chunk_(chunk), scratch_(host, 0, "host update") {
  if (device.host_visible() || !host.host_visible())
    throw_error(ErrorKind::internal, "optimizer state of {} offloaded to {}", device.name(), host.name());
  for (Slot& slot : slots_) {
    slot.gradient = PinnedBuffer(device, static_cast<size_t>(chunk) * sizeof(float));
    slot.weight = PinnedBuffer(device, static_cast<size_t>(chunk) * size_of(DType::bf16));
    slot.decision = PinnedBuffer(device, decision_bytes);
    slot.arrived = device.make_event();
  }
  point_ = device.make_event();
}

size_t HostUpdate::bytes(int64_t chunk) {
  return 2 * (static_cast<size_t>(chunk) * (sizeof(float) + size_of(DType::bf16)) + decision_bytes);
}

ops::Context HostUpdate::on_host(const ops::Context& context) {
  return {host_, context.registry, scratch_, context.threads};
}

void HostUpdate::add(const TrainedParameter& parameter, const Tensor& gradient, const UpdateAttributes& attributes,
                     int64_t layer) {
  for (int64_t begin = 0; begin < gradient.elements(); begin += chunk_) {
    const Tensor part = gradient.slice(begin, std::min(begin + chunk_, gradient.elements()));
    waiting_.push_back({&parameter, begin, part, attributes, layer});
  }
}

void HostUpdate::begin() {
  point_->record(Stream::compute);
  point_->wait_on(Stream::copy);
}

void HostUpdate::step(const ops::Context& context) {
  Slot& slot = slots_[next_];
  slot.chunk = waiting_.front();
  waiting_.pop_front();
  log(Action::download, *slot.chunk.parameter, true);
  device_.copy_to_host_async(Stream::copy, slot.gradient.data(), slot.chunk.gradient.data, slot.chunk.gradient.bytes());
  device_.copy_to_host_async(Stream::copy, slot.decision.data(), slot.chunk.attributes.decision.data, decision_bytes);
  slot.arrived->record(Stream::copy);
  next_ = 1 - next_;
  complete(context, slots_[next_]);
}

void HostUpdate::advance(ops::Context& context, int64_t layer) {
  bool some = false;
  while (true) {
    Slot& copied = slots_[1 - next_];
    if (copied.chunk.parameter != nullptr) {
      if (copied.chunk.layer > layer) break;
      some = true;
    }
    if (!waiting_.empty()) {
      step(context);
    } else if (copied.chunk.parameter != nullptr) {
      complete(context, copied);
    } else {
      break;
    }
  }
  if (!some) return;
  point_->record(Stream::copy);
  point_->wait_on(Stream::compute);
}

void HostUpdate::abandon() {
  waiting_.clear();
  for (Slot& slot : slots_) slot.chunk.parameter = nullptr;
}

void HostUpdate::complete(const ops::Context& context, Slot& slot) {
  const TrainedParameter* t = std::exchange(slot.chunk.parameter, nullptr);
  if (t == nullptr) return;
  slot.arrived->wait();
  log(Action::download, *t, false);
  const Tensor decision{slot.decision.data(), DType::f64, Shape{3}, &host_};
  if (decision.as<double>()[2] != 0) return;  // the update is skipped, and writes no weights
  const Shape elements = slot.chunk.gradient.shape;
  const int64_t begin = slot.chunk.begin, end = begin + elements.elements();
  std::vector<StateTensor> state = t->state;
  for (StateTensor& each : state) each.tensor = flat(each.tensor).slice(begin, end);
  const ParameterUpdate update{.shape = elements,
                               .master = flat(t->master).slice(begin, end),
                               .weight = {slot.weight.data(), DType::bf16, elements, &host_},
                               .gradient = {slot.gradient.data(), DType::f32, elements, &host_},
                               .activation = t->weight.dtype,
                               .decay = t->decay};
  slot.chunk.attributes.decision = decision;
  ops::Context host = on_host(context);
  log(Action::host_update, *t, true);
  run_update(host, *t->optimizer, state, update, slot.chunk.attributes);
  log(Action::host_update, *t, false);
  const Tensor weight = t->own_weight.slice(begin, end);
  log(Action::upload, *t, true);
  // The slot's next gradient is copied after this in the same stream: once that has arrived, `weight` was read.
  device_.copy_from_host_async(Stream::copy, weight.data, slot.weight.data(), weight.bytes());
  log(Action::upload, *t, false);
}

void HostUpdate::log(Action action, const TrainedParameter& parameter, bool begins) const {
  if (log_ == nullptr) return;
  const auto number = static_cast<int64_t>(parameter.number);
  begins ? log_->begin(action, number) : log_->end(action, number);
}

void HostUpdate::init_master(ops::Context& context, const TrainedParameter& t) {
  ops::Context host = on_host(context);
  for (int64_t begin = 0; begin < t.own_weight.elements(); begin += chunk_) {
    const Tensor weight = t.own_weight.slice(begin, std::min(begin + chunk_, t.own_weight.elements()));
    device_.copy_to_host(slots_[0].weight.data(), weight.data, weight.bytes());
    const Tensor copy{slots_[0].weight.data(), weight.dtype, weight.shape, &host_};
    ops::scale(host, flat(t.master).slice(begin, begin + weight.elements()), copy, 1);
  }
}

void HostUpdate::refresh_weight(ops::Context& context, const TrainedParameter& t) {
  ops::Context host = on_host(context);
  for (int64_t begin = 0; begin < t.own_weight.elements(); begin += chunk_) {
    const Tensor weight = t.own_weight.slice(begin, std::min(begin + chunk_, t.own_weight.elements()));
    const Tensor copy{slots_[0].weight.data(), weight.dtype, weight.shape, &host_};
    ops::scale(host, copy, flat(t.master).slice(begin, begin + weight.elements()), 1);
    device_.copy_from_host(weight.data, copy.data, weight.bytes());
  }
}

}  // namespace ingot::train
