#include "train/pipeline.h"

#include <algorithm>

#include "base/error.h"
#include "spec/pipeline_timing.h"

namespace ingot::train {

using spec::PipelineAction;
using spec::PipelineStep;

Pipeline::Pipeline(Device& device, const spec::PipelineSchedule& schedule, const comm::Group& ranks,
                   std::vector<const models::Model*> chunks, std::span<Arena> saved)
    : device_(device), schedule_(schedule), ranks_(ranks), chunks_(std::move(chunks)) {
  spec::check(schedule);
  const spec::PipelineShape& shape = schedule.shape;
  const int slots = spec::activation_slots(schedule, ranks.rank());
  if (ranks.size() != shape.ranks || std::ssize(chunks_) != shape.chunks || std::ssize(saved) != slots) {
    throw_error(ErrorKind::internal,
                "a pipeline of {} ranks with {} chunks and {} slots, for a schedule of {} with {} and {}", ranks.size(),
                chunks_.size(), saved.size(), shape.ranks, shape.chunks, slots);
  }
  for (Arena& arena : saved) slots_.push_back({models::Slot(arena), std::nullopt});
  if (ranks.size() == 1) return;
  // Messages between two ranks arrive in the order in which they were sent, so each kind has a group of its own.
  activations_ = ranks.split(0, ranks.rank(), "pipeline activations");
  gradients_ = ranks.split(0, ranks.rank(), "pipeline gradients");
}

void Pipeline::run(PipelineWork& work) {
  for (const PipelineStep& step : schedule_.ranks[static_cast<size_t>(ranks_.rank())]) {
    switch (step.action) {
      case PipelineAction::receive_activation:
      case PipelineAction::receive_gradient: receive(work, step); break;
      case PipelineAction::send_activation:
      case PipelineAction::send_gradient: send(step); break;
      case PipelineAction::forward: forward(work, step); break;
      case PipelineAction::backward: backward(work, step, false); break;
      case PipelineAction::backward_input: backward(work, step, true); break;
      case PipelineAction::backward_weight: backward_weight(work, step); break;
      case PipelineAction::reduce: work.reduce(schedule_.chunk_of(step.virtual_stage)); break;
      case PipelineAction::update: work.update(); break;
    }
  }
  for (auto& [channel, transfers] : outgoing_) {
    for (Transfer& transfer : transfers) transfer.operation.wait();
    transfers.clear();
  }
}

Pipeline::StageSlot& Pipeline::slot_with(std::optional<std::pair<int, int>> held) {
  const auto found = std::ranges::find(slots_, held, &StageSlot::holds);
  if (found == slots_.end()) throw_error(ErrorKind::internal, "the pipeline has no such slot among {}", slots_.size());
  return *found;
}

void Pipeline::forward(PipelineWork& work, const PipelineStep& step) {
  const int stage = step.virtual_stage, chunk = schedule_.chunk_of(stage);
  StageSlot& used = slot_with(std::nullopt);
  models::Slot& slot = used.slot;
  if (stage > 0)
    take(step, slot.begin_forward(work.activation(), Shape{work.tokens(step.micro_batch), model(stage).spec().hidden}));
  nn::Pass pass = work.pass(step.micro_batch, is_trained(stage));
  model(stage).forward(pass, slot);
  if (is_last(stage)) {
    const nn::Objective& objective = work.objective(step.micro_batch);
    if (is_trained(stage)) work.begin_gradients(chunk, step.micro_batch);
    model(stage).loss(pass, slot, objective);
    if (is_trained(stage)) work.end_gradients(chunk, step.micro_batch);
  } else {
    keep(step, slot.residual);
  }
  if (is_trained(stage)) {
    used.holds = {stage, step.micro_batch};
  } else {
    slot.clear();
  }
}

void Pipeline::backward(PipelineWork& work, const PipelineStep& step, bool defers) {
  const int stage = step.virtual_stage, chunk = schedule_.chunk_of(stage);
  StageSlot& used = slot_with(std::pair{stage, step.micro_batch});
  if (!is_last(stage)) take(step, used.slot.begin_backward());
  nn::Pass pass = work.pass(step.micro_batch, true);
  nn::Training training = *pass.training;
  if (defers) training.deferred = &used.slot.deferred;
  pass.training = &training;
  work.begin_gradients(chunk, step.micro_batch);
  model(stage).backward(pass, used.slot);
  work.end_gradients(chunk, step.micro_batch);
  if (stage > schedule_.shape.first_trainable) keep(step, used.slot.dresidual);
  if (!defers) release(used);
}

void Pipeline::backward_weight(PipelineWork& work, const PipelineStep& step) {
  const int chunk = schedule_.chunk_of(step.virtual_stage);
  StageSlot& used = slot_with(std::pair{step.virtual_stage, step.micro_batch});
  nn::Pass pass = work.pass(step.micro_batch, true);
  work.begin_gradients(chunk, step.micro_batch);
  used.slot.deferred.compute(pass);
  work.end_gradients(chunk, step.micro_batch);
  release(used);
}

void Pipeline::release(StageSlot& used) {
  used.slot.clear();
  used.holds.reset();
}

void Pipeline::keep(const PipelineStep& step, const Tensor& x) {
  Bytes bytes(x.bytes());
  device_.copy_to_host(bytes.data(), x.data, bytes.size());
  kept_[spec::output_of(step)] = std::move(bytes);
}

void Pipeline::send(const PipelineStep& step) {
  const spec::PipelineMessage message = spec::output_of(step);
  std::deque<Transfer>& under_way = outgoing_[{message.kind, step.peer}];
  if (under_way.size() >= spec::max_sends_under_way) {
    under_way.front().operation.wait();
    under_way.pop_front();
  }
  Transfer& transfer = under_way.emplace_back();
  transfer.bytes = std::move(kept_.extract(message).mapped());
  transfer.operation = group(message.kind).begin_send(transfer.bytes, step.peer);
}

void Pipeline::receive(const PipelineWork& work, const PipelineStep& step) {
  const spec::PipelineMessage message = spec::input_of(step);
  const int64_t elements = work.tokens(step.micro_batch) * model(step.virtual_stage).spec().hidden;
  Transfer& transfer = incoming_[message];
  transfer.bytes.resize(static_cast<size_t>(elements) * size_of(work.activation()));
  transfer.operation = group(message.kind).begin_receive(transfer.bytes, step.peer);
}

void Pipeline::take(const PipelineStep& step, const Tensor& into) {
  const spec::PipelineMessage message = spec::input_of(step);
  auto received = incoming_.extract(message);
  if (!received.empty()) received.mapped().operation.wait();
  const Bytes bytes =
      received.empty() ? std::move(kept_.extract(message).mapped()) : std::move(received.mapped().bytes);
  device_.copy_from_host(into.data, bytes.data(), bytes.size());
}

}  // namespace ingot::train
