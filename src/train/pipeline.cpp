#include "train/pipeline.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "comm/host_communicator.h"
#include "ops/columns.h"
#include "spec/pipeline_timing.h"

namespace ingot::train {

using spec::PipelineAction;
using spec::PipelineStep;

namespace {

// By rank of the pipeline. Through host memory all of them go by one communicator, whose sends do not wait for receives
// of others.
std::map<int, comm::Grid::Link> links_of(Device& device, const comm::Grid& grid) {
  if (!grid.on_device.links.empty()) return grid.on_device.links;
  std::map<int, comm::Grid::Link> links;
  const std::shared_ptr<comm::DeviceCommunicator> all = comm::through_host(device, grid.messages);
  for (int rank = 0; rank < grid.messages.size(); ++rank) links[rank] = {all, all, rank};
  return links;
}

}  // namespace

Pipeline::Pipeline(ops::Context& context, const comm::Grid& grid, std::vector<const models::Model*> chunks,
                   std::span<Arena> saved, Arena& shared, PipelineMessages messages)
    : context_(context),
      ranks_(grid.pp),
      links_(links_of(context.device, grid)),
      chunks_(std::move(chunks)),
      messages_(context.device, messages.total(), "messages of a pipeline") {
  for (Arena& arena : saved) slots_.push_back({models::Slot(arena, shared), std::nullopt});
  for (int i = 0; i < messages.count; ++i) {
    buffers_.push_back({static_cast<std::byte*>(messages_.allocate_bytes(messages.bytes)),
                        links_.begin()->second.send->make_workspace(messages.bytes)});
  }
  forget();
}

const comm::Grid::Link& Pipeline::link(int peer) const {
  const auto found = links_.find(peer);
  if (found == links_.end())
    throw_error(ErrorKind::internal, "stage {} of the pipeline has no link to stage {}", ranks_.rank(), peer);
  return found->second;
}

const models::Model& Pipeline::model(int virtual_stage) const {
  const auto found = std::ranges::find(chunks_, virtual_stage, [](const models::Model* m) { return m->shard().stage; });
  if (found == chunks_.end())
    throw_error(ErrorKind::internal, "stage {} of the pipeline has no part {}", ranks_.rank(), virtual_stage);
  return **found;
}

void Pipeline::run(const spec::PipelineSchedule& schedule, PipelineWork& work, Peers peers) {
  if (ranks_.size() != schedule.shape.ranks || std::ssize(chunks_) != schedule.shape.chunks) {
    throw_error(ErrorKind::internal, "a pipeline of {} ranks with {} chunks, for a schedule of {} with {}",
                ranks_.size(), chunks_.size(), schedule.shape.ranks, schedule.shape.chunks);
  }
  Run run{schedule, work, peers};
  try {
    execute(run);
  } catch (...) {
    forget();
    throw;
  }
}

void Pipeline::execute(Run& run) {
  const std::vector<PipelineStep>& steps = run.schedule.ranks[static_cast<size_t>(ranks_.rank())];
  const std::vector<size_t> last = spec::last_computations(run.schedule, ranks_.rank());
  int started = 0;  // micro-batches
  for (size_t i = 0; i < steps.size(); ++i) {
    const PipelineStep& step = steps[i];
    if (step.action == PipelineAction::reduce) {
      run.work.reduce(run.schedule.chunk_of(step.virtual_stage));
    } else if (step.action == PipelineAction::update) {
      run.work.update();
    } else {
      for (; is_computation(step.action) && started <= step.micro_batch; ++started) run.work.begin(started);
      if (run.work.tokens(step.micro_batch) > 0) {
        run_action(run, step);
      } else if (is_computation(step.action)) {
        run.work.skips(step);
      }
      if (is_computation(step.action)) run.work.computed();
      if (last[static_cast<size_t>(step.micro_batch)] == i) run.work.end(step.micro_batch);
    }
  }
  for (auto& [peer, transfers] : outgoing_) {
    for (Transfer& transfer : transfers) {
      transfer.operation->wait();
      free_buffers_.push_back(transfer.buffer);
    }
    transfers.clear();
  }
}

void Pipeline::run_action(Run& run, const PipelineStep& step) {
  if (is_computation(step.action)) run.work.computes(step);
  switch (step.action) {
    case PipelineAction::receive_activation:
    case PipelineAction::receive_gradient: return receive(run, step);
    case PipelineAction::send_activation:
    case PipelineAction::send_gradient: return send(run, step);
    case PipelineAction::forward: return forward(run, step);
    case PipelineAction::backward: return backward(run, step, false);
    case PipelineAction::backward_input: return backward(run, step, true);
    case PipelineAction::backward_weight: return backward_weight(run, step);
    case PipelineAction::reduce:
    case PipelineAction::update: return;
  }
}

// Makes all slots and buffers free.
void Pipeline::forget() {
  for (StageSlot& used : slots_) release(used);
  kept_.clear();
  incoming_.clear();
  outgoing_.clear();
  free_buffers_.resize(buffers_.size());
  std::iota(free_buffers_.begin(), free_buffers_.end(), size_t{0});
}

Pipeline::StageSlot& Pipeline::slot_with(std::optional<std::pair<int, int>> held) {
  const auto found = std::ranges::find(slots_, held, &StageSlot::holds);
  if (found == slots_.end()) throw_error(ErrorKind::internal, "the pipeline has no such slot among {}", slots_.size());
  return *found;
}

size_t Pipeline::take_buffer() {
  if (free_buffers_.empty()) throw_error(ErrorKind::internal, "{} messages of a pipeline are in use", buffers_.size());
  const size_t buffer = free_buffers_.back();
  free_buffers_.pop_back();
  return buffer;
}

void Pipeline::forward(Run& run, const PipelineStep& step) {
  const int stage = step.virtual_stage;
  StageSlot& used = slot_with(std::nullopt);
  models::Slot& slot = used.slot;
  if (stage > 0) {
    const Shape shape{run.work.tokens(step.micro_batch), model(stage).spec().hidden};
    take(run, step, slot.begin_forward(run.work.activation(), shape));
  }
  nn::Pass pass = run.work.pass(step.micro_batch, run.is_trained(stage));
  model(stage).forward(pass, slot);
  if (run.is_last(stage)) {
    model(stage).loss(pass, slot, run.work.objective(step.micro_batch));
    run.work.computed_loss(step.micro_batch);
  } else {
    keep(run, step, slot.residual);
  }
  if (run.is_trained(stage)) {
    used.holds = {stage, step.micro_batch};
  } else {
    slot.clear();
  }
}

void Pipeline::backward(Run& run, const PipelineStep& step, bool defers) {
  const int stage = step.virtual_stage;
  StageSlot& used = slot_with(std::pair{stage, step.micro_batch});
  if (!run.is_last(stage)) take(run, step, used.slot.begin_backward());
  nn::Pass pass = run.work.pass(step.micro_batch, true);
  nn::Training training = *pass.training;
  if (defers) training.deferred = &used.slot.deferred;
  pass.training = &training;
  model(stage).backward(pass, used.slot);
  if (stage > run.schedule.shape.first_trainable) keep(run, step, used.slot.dresidual);
  if (!defers) release(used);
}

void Pipeline::backward_weight(Run& run, const PipelineStep& step) {
  StageSlot& used = slot_with(std::pair{step.virtual_stage, step.micro_batch});
  nn::Pass pass = run.work.pass(step.micro_batch, true);
  used.slot.deferred.compute(pass);
  release(used);
}

void Pipeline::release(StageSlot& used) {
  used.slot.clear();
  used.holds.reset();
}

Tensor Pipeline::message(const Run& run, const PipelineStep& step, size_t buffer) const {
  const Shape shape{run.work.tokens(step.micro_batch), model(step.virtual_stage).spec().hidden};
  return {buffers_[buffer].data, run.work.activation(), shape, &context_.device};
}

void Pipeline::copy(const Tensor& to, const Tensor& from) {
  ops::gather_columns(context_, to, from, {.width = from.shape[1]});
}

void Pipeline::keep(Run& run, const PipelineStep& step, const Tensor& x) {
  const size_t buffer = take_buffer();
  copy(message(run, step, buffer), x);
  kept_[spec::output_of(step)] = buffer;
}

// A buffer is free when the compute stream comes after all that uses it: what uses it next follows that stream.
void Pipeline::send(Run& run, const PipelineStep& step) {
  const size_t buffer = kept_.extract(spec::output_of(step)).mapped();
  if (run.peers == Peers::absent) return free_buffers_.push_back(buffer);
  std::deque<Transfer>& under_way = outgoing_[step.peer];
  if (under_way.size() >= spec::max_sends_under_way) {
    under_way.front().operation->wait();
    free_buffers_.push_back(under_way.front().buffer);
    under_way.pop_front();
  }
  const Tensor sent = message(run, step, buffer);
  if (traffic_ != nullptr) traffic_->add({spec::Axis::pp, spec::Collective::send}, static_cast<int64_t>(sent.bytes()));
  const comm::Grid::Link& to = link(step.peer);
  under_way.push_back({buffer, to.send->send(buffers_[buffer].workspace, sent.data, sent.bytes(), to.peer)});
}

void Pipeline::receive(Run& run, const PipelineStep& step) {
  const size_t buffer = take_buffer();
  const Tensor received = message(run, step, buffer);
  Transfer transfer{buffer, nullptr};
  if (run.peers == Peers::absent) {
    context_.device.fill_zero(received.data, received.bytes());
  } else {
    const comm::Grid::Link& from = link(step.peer);
    transfer.operation = from.receive->receive(buffers_[buffer].workspace, received.data, received.bytes(), from.peer);
  }
  incoming_[spec::input_of(step)] = std::move(transfer);
}

void Pipeline::take(Run& run, const PipelineStep& step, const Tensor& into) {
  const spec::PipelineMessage wanted = spec::input_of(step);
  size_t buffer = 0;
  if (auto received = incoming_.extract(wanted)) {
    if (run.peers == Peers::present) received.mapped().operation->wait();
    buffer = received.mapped().buffer;
  } else {
    buffer = kept_.extract(wanted).mapped();
  }
  copy(into, message(run, step, buffer));
  free_buffers_.push_back(buffer);
}

}  // namespace ingot::train
