#include "train/pipeline.h"

#include <algorithm>

#include "base/error.h"
#include "spec/pipeline_timing.h"

namespace ingot::train {

namespace {

using spec::PipelineAction;
using spec::PipelineStep;

}  // namespace

Pipeline::Pipeline(Device& device, const spec::PipelineSchedule& schedule, const comm::Group& ranks,
                   std::vector<const models::Model*> chunks, std::span<Arena> saved)
    : device_(device), schedule_(schedule), ranks_(ranks), chunks_(std::move(chunks)), slot_users_(saved.size()) {
  const spec::PipelineShape& shape = schedule.shape;
  const auto kept = static_cast<size_t>(std::max(1, spec::kept_activations(schedule, ranks.rank())));
  if (ranks.size() != shape.ranks || std::ssize(chunks_) != shape.chunks || saved.size() < kept) {
    throw_error(ErrorKind::internal,
                "a pipeline of {} ranks with {} chunks and {} slots, for a schedule of {} with {} and {}", ranks.size(),
                chunks_.size(), saved.size(), shape.ranks, shape.chunks, kept);
  }
  for (const PipelineStep& step : schedule.ranks[static_cast<size_t>(ranks.rank())]) {
    if (step.action == PipelineAction::backward_input || step.action == PipelineAction::backward_weight) {
      throw_hint(ErrorKind::unsupported, "use the schedule gpipe, 1f1b or interleaved",
                 "the schedule {} computes the gradients of weights apart, which is not supported yet",
                 spec::name_of(schedule.name));
    }
  }
  for (Arena& arena : saved) slots_.emplace_back(arena);
  // Messages between two ranks arrive in the order in which they were sent, so each kind has a group of its own.
  if (ranks.size() == 1) return;
  activations_ = ranks.split(0, ranks.rank(), "pipeline activations");
  gradients_ = ranks.split(0, ranks.rank(), "pipeline gradients");
}

void Pipeline::run(PipelineWork& work) {
  for (const PipelineStep& step : schedule_.ranks[static_cast<size_t>(ranks_.rank())]) {
    switch (step.action) {
      case PipelineAction::receive_activation: receive(work, false, step); break;
      case PipelineAction::receive_gradient: receive(work, true, step); break;
      case PipelineAction::send_activation: send(false, step.virtual_stage + 1, step); break;
      case PipelineAction::send_gradient: send(true, step.virtual_stage - 1, step); break;
      case PipelineAction::forward: forward(work, step); break;
      case PipelineAction::backward: backward(work, step); break;
      case PipelineAction::reduce: work.reduce(schedule_.chunk_of(step.virtual_stage)); break;
      case PipelineAction::update: work.update(); break;
      case PipelineAction::backward_input:
      case PipelineAction::backward_weight: break;  // refused by the constructor
    }
  }
  for (auto& [channel, messages] : outgoing_) {
    for (Message& message : messages) message.operation.wait();
    messages.clear();
  }
}

size_t Pipeline::free_slot() const {
  const auto found = std::ranges::find_if(slot_users_, [](const auto& user) { return !user; });
  if (found == slot_users_.end())
    throw_error(ErrorKind::internal, "all {} slots of the pipeline are in use", slots_.size());
  return static_cast<size_t>(found - slot_users_.begin());
}

void Pipeline::forward(PipelineWork& work, const PipelineStep& step) {
  const bool first = step.virtual_stage == 0, last = step.virtual_stage == schedule_.shape.virtual_stages() - 1;
  const size_t at = free_slot();
  models::Slot& slot = slots_[at];
  nn::Pass pass = work.pass(step.micro_batch, saves(step.virtual_stage));
  const models::Model& part = model(step.virtual_stage);
  if (!first) take(false, step, slot.begin(pass.activation, Shape{pass.batch.tokens(), part.spec().hidden}));
  part.forward(pass, slot);
  part.loss(pass, slot, work.objective(step.micro_batch));
  if (!last) keep(false, step.virtual_stage + 1, step.micro_batch, slot.residual);
  if (saves(step.virtual_stage)) {
    slot_users_[at] = {step.virtual_stage, step.micro_batch};
  } else {
    slot.clear();
  }
}

void Pipeline::backward(PipelineWork& work, const PipelineStep& step) {
  const int chunk = schedule_.chunk_of(step.virtual_stage);
  const std::optional user = std::pair{step.virtual_stage, step.micro_batch};
  const auto at = static_cast<size_t>(std::ranges::find(slot_users_, user) - slot_users_.begin());
  models::Slot& slot = slots_[at];
  if (step.virtual_stage < schedule_.shape.virtual_stages() - 1) take(true, step, slot.begin_backward());
  nn::Pass pass = work.pass(step.micro_batch, true);
  work.begin_backward(chunk, step.micro_batch);
  model(step.virtual_stage).backward(pass, slot);
  work.end_backward(chunk, step.micro_batch);
  if (step.virtual_stage > schedule_.shape.first_trainable)
    keep(true, step.virtual_stage - 1, step.micro_batch, slot.dresidual);
  slot.clear();
  slot_users_[at].reset();
}

void Pipeline::keep(bool gradient, int user, int micro_batch, const Tensor& x) {
  Bytes bytes(x.bytes());
  device_.copy_to_host(bytes.data(), x.data, bytes.size());
  kept_[{gradient, user, micro_batch}] = std::move(bytes);
}

void Pipeline::send(bool gradient, int user, const PipelineStep& step) {
  std::deque<Message>& under_way = outgoing_[{gradient, step.peer}];
  if (under_way.size() >= spec::max_sends_under_way) {
    under_way.front().operation.wait();
    under_way.pop_front();
  }
  const auto kept = kept_.extract({gradient, user, step.micro_batch});
  Message& message = under_way.emplace_back();
  message.bytes = std::move(kept.mapped());
  message.operation = group(gradient).begin_send(message.bytes, step.peer);
}

void Pipeline::receive(PipelineWork& work, bool gradient, const PipelineStep& step) {
  const nn::Pass pass = work.pass(step.micro_batch, saves(step.virtual_stage));
  Message& message = incoming_[{gradient, step.virtual_stage, step.micro_batch}];
  const int64_t elements = pass.batch.tokens() * model(step.virtual_stage).spec().hidden;
  message.bytes.resize(static_cast<size_t>(elements) * size_of(pass.activation));
  message.operation = group(gradient).begin_receive(message.bytes, step.peer);
}

void Pipeline::take(bool gradient, const PipelineStep& step, const Tensor& into) {
  const Key key{gradient, step.virtual_stage, step.micro_batch};
  auto incoming = incoming_.extract(key);
  Bytes bytes;
  if (incoming.empty()) {
    bytes = std::move(kept_.extract(key).mapped());
  } else {
    incoming.mapped().operation.wait();
    bytes = std::move(incoming.mapped().bytes);
  }
  device_.copy_from_host(into.data, bytes.data(), bytes.size());
}

}  // namespace ingot::train
