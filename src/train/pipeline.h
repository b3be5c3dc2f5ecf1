// Executes one rank's actions of a pipeline schedule (spec/pipeline_schedule.h).
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "comm/group.h"
#include "models/model.h"
#include "spec/pipeline_schedule.h"

namespace ingot::train {

// What a pipeline computes with. The data of a micro-batch must be unchanged from its first forward to its last
// backward action.
class PipelineWork {
 public:
  virtual ~PipelineWork() = default;
  // The arguments of a micro-batch's pass. With `saves` it is a training pass, else one without backward.
  virtual nn::Pass pass(int micro_batch, bool saves) = 0;
  virtual const nn::Objective& objective(int micro_batch) = 0;
  // Around each backward of a chunk of this rank.
  virtual void begin_backward(int chunk, int micro_batch) = 0;
  virtual void end_backward(int chunk, int micro_batch) = 0;
  // The gradients of a chunk are complete; their sum over data-parallel ranks may start.
  virtual void reduce(int chunk) = 0;
  virtual void update() = 0;
};

// Activations and gradients cross stages by way of host memory, on every device.
class Pipeline {
 public:
  // Collective over `ranks`, one of which each rank of the schedule is. `chunks`: the models of this rank's virtual
  // stages, in order; each is the shard {pp = virtual stages, stage} of one model. `saved`: spec::kept_activations
  // arenas, at least one, each large enough for any of the chunks (models::Slot). All outlive the pipeline.
  // ErrorKind::unsupported for schedules with separate gradients of weights.
  Pipeline(Device& device, const spec::PipelineSchedule& schedule, const comm::Group& ranks,
           std::vector<const models::Model*> chunks, std::span<Arena> saved);

  // One step of the schedule. Collective. Errors: those of `work` and of the group; the pipeline can be used again only
  // if there was none.
  void run(PipelineWork& work);

 private:
  using Bytes = std::vector<std::byte>;
  using Key = std::tuple<bool, int, int>;  // gradient or activation, the virtual stage that uses it, micro-batch
  struct Message {
    Bytes bytes;
    comm::Operation operation;
  };

  const models::Model& model(int virtual_stage) const {
    return *chunks_[static_cast<size_t>(schedule_.chunk_of(virtual_stage))];
  }
  const comm::Group& group(bool gradient) const { return gradient ? gradients_ : activations_; }
  bool saves(int virtual_stage) const { return virtual_stage >= schedule_.shape.first_trainable; }
  void forward(PipelineWork& work, const spec::PipelineStep& step);
  void backward(PipelineWork& work, const spec::PipelineStep& step);
  // Keeps a copy of what virtual stage `user` will use, until it is sent or, on the same rank, used.
  void keep(bool gradient, int user, int micro_batch, const Tensor& x);
  void send(bool gradient, int user, const spec::PipelineStep& step);
  void receive(PipelineWork& work, bool gradient, const spec::PipelineStep& step);
  // What keep() or receive() has got for a virtual stage of this rank.
  void take(bool gradient, const spec::PipelineStep& step, const Tensor& into);
  size_t free_slot() const;

  Device& device_;
  const spec::PipelineSchedule& schedule_;
  comm::Group ranks_, activations_, gradients_;
  std::vector<const models::Model*> chunks_;
  std::vector<models::Slot> slots_;
  std::vector<std::optional<std::pair<int, int>>> slot_users_;  // by slot: virtual stage and micro-batch
  std::map<Key, Bytes> kept_;
  std::map<Key, Message> incoming_;
  std::map<std::pair<bool, int>, std::deque<Message>> outgoing_;  // by kind and rank: sends under way
};

}  // namespace ingot::train
