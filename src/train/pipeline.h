// Executes one rank's actions of a pipeline schedule (spec/pipeline_schedule.h).
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "comm/group.h"
#include "models/model.h"
#include "spec/pipeline_schedule.h"

namespace ingot::train {

// What a pipeline computes with. Chunks are numbered as in the schedule.
class PipelineWork {
 public:
  virtual ~PipelineWork() = default;
  virtual int64_t tokens(int micro_batch) const = 0;
  virtual DType activation() const = 0;
  // The arguments of a pass over a micro-batch. With `saves` it is a training pass, else one without backward. What it
  // refers to is valid until the next call; the micro-batch's data are the same in each of its passes.
  virtual nn::Pass pass(int micro_batch, bool saves) = 0;
  // Called on the rank of the last virtual stage alone.
  virtual const nn::Objective& objective(int micro_batch) = 0;
  // Around everything that adds to the gradients of a chunk: its backward actions and, with the head, the loss.
  virtual void begin_gradients(int chunk, int micro_batch) = 0;
  virtual void end_gradients(int chunk, int micro_batch) = 0;
  // The gradients of a chunk are complete; their sum over data-parallel ranks may start.
  virtual void reduce(int chunk) = 0;
  virtual void update() = 0;
};

// Activations and gradients cross stages by way of host memory, on every device; it is allocated for each message.
class Pipeline {
 public:
  // Collective over `ranks`, the ranks of the schedule. `chunks`: the models of this rank's virtual stages, in order;
  // each is the shard {pp = virtual stages, stage} of one model, with input_gradient for stages above the schedule's
  // first trainable one. `saved`: spec::activation_slots arenas, each large enough for any of the chunks (models::Slot)
  // and, in schedules with separate gradients of weights, spec::deferred_gradient_bytes in addition. All outlive the
  // pipeline. Errors: those of spec::check; internal for another number of ranks, chunks or arenas than the schedule's.
  Pipeline(Device& device, const spec::PipelineSchedule& schedule, const comm::Group& ranks,
           std::vector<const models::Model*> chunks, std::span<Arena> saved);

  // One step of the schedule. Collective. Errors: those of `work` and of the group; after one the pipeline cannot be
  // used again.
  void run(PipelineWork& work);

 private:
  using Bytes = std::vector<std::byte>;
  using Kind = spec::PipelineMessage::Kind;
  struct Transfer {
    Bytes bytes;
    comm::Operation operation;
  };
  struct StageSlot {
    models::Slot slot;
    std::optional<std::pair<int, int>> holds;  // a virtual stage's activations of a micro-batch
  };

  const models::Model& model(int virtual_stage) const {
    return *chunks_[static_cast<size_t>(schedule_.chunk_of(virtual_stage))];
  }
  const comm::Group& group(Kind kind) const { return kind == Kind::gradient ? gradients_ : activations_; }
  bool is_last(int virtual_stage) const { return virtual_stage == schedule_.shape.virtual_stages() - 1; }
  bool is_trained(int virtual_stage) const { return virtual_stage >= schedule_.shape.first_trainable; }
  void forward(PipelineWork& work, const spec::PipelineStep& step);
  // `defers`: leaves gradients of weights to backward_weight().
  void backward(PipelineWork& work, const spec::PipelineStep& step, bool defers);
  void backward_weight(PipelineWork& work, const spec::PipelineStep& step);
  void release(StageSlot& used);
  // Copies what a computation has made to the host, for send() or, within this rank, take().
  void keep(const spec::PipelineStep& step, const Tensor& x);
  void send(const spec::PipelineStep& step);
  void receive(const PipelineWork& work, const spec::PipelineStep& step);
  // The input of a computation.
  void take(const spec::PipelineStep& step, const Tensor& into);
  StageSlot& slot_with(std::optional<std::pair<int, int>> held);

  Device& device_;
  const spec::PipelineSchedule& schedule_;
  comm::Group ranks_, activations_, gradients_;
  std::vector<const models::Model*> chunks_;
  std::vector<StageSlot> slots_;
  std::map<spec::PipelineMessage, Bytes> kept_;
  std::map<spec::PipelineMessage, Transfer> incoming_;
  std::map<std::pair<Kind, int>, std::deque<Transfer>> outgoing_;  // by rank: sends under way
};

}  // namespace ingot::train
