// Executes one rank's actions of a pipeline schedule (spec/pipeline_schedule.h). A training step without a pipeline is
// the schedule of one rank.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "comm/grid.h"
#include "models/model.h"
#include "spec/pipeline_schedule.h"

namespace ingot::train {

// What a pipeline computes with: the micro-batches of one step, or of an evaluation.
class PipelineWork {
 public:
  virtual ~PipelineWork() = default;
  // 0 for a micro-batch without sequences: nothing is computed or sent for it.
  virtual int64_t tokens(int micro_batch) const = 0;
  virtual DType activation() const = 0;
  // Before a micro-batch's first computation on this rank, and after its last. Micro-batches begin in ascending order.
  virtual void begin(int micro_batch) = 0;
  virtual void end(int micro_batch) = 0;
  // Before each computation.
  virtual void computes(const spec::PipelineStep& step) = 0;
  // In place of one of a micro-batch without sequences, of which other data-parallel ranks may have some.
  virtual void skips(const spec::PipelineStep& step) = 0;
  // After each computation.
  virtual void computed() = 0;
  // The arguments of a pass over a micro-batch, between its begin() and its end(). With `saves` it is a training pass,
  // else one without backward. What it refers to is valid until the next call.
  virtual nn::Pass pass(int micro_batch, bool saves) = 0;
  // On the rank of the last virtual stage alone: what is computed there, and after that.
  virtual const nn::Objective& objective(int micro_batch) = 0;
  virtual void computed_loss(int micro_batch) = 0;
  // The gradients of a chunk are complete; their sum over data-parallel ranks may start.
  virtual void reduce(int chunk) = 0;
  virtual void update() = 0;
};

// Device memory of a pipeline besides the slots: copies of the activations and gradients that cross stages. As much
// host memory comes to it where they go through that and it is another memory than the device's.
struct PipelineMessages {
  int count = 0;     // the most at a time (spec::message_buffers)
  size_t bytes = 0;  // of the largest, a multiple of Arena::alignment
  size_t total() const { return static_cast<size_t>(count) * bytes; }
};

class Pipeline {
 public:
  // `grid`: of the pipeline's ranks; messages go by its `on_device.links`, or else through host memory. `chunks`: the
  // models of this rank's virtual stages, in order;
  // each is the shard {pp = virtual stages, stage} of one model, with its gradient for the input where
  // spec::backward_end says so. `saved`: as many arenas as spec::activation_slots says for any of the schedules to be
  // run, each large enough for any of the chunks (models::Slot) and, in schedules with separate gradients of weights,
  // spec::deferred_gradient_bytes in addition; `shared`: what the slots share. `context`, models and arenas outlive the
  // pipeline. Errors: resource; internal where `grid` has links, but not to a rank that messages are for.
  Pipeline(ops::Context& context, const comm::Grid& grid, std::vector<const models::Model*> chunks,
           std::span<Arena> saved, Arena& shared, PipelineMessages messages);

  // What is sent is added to `traffic`, which outlives this.
  void set_traffic(spec::Traffic* traffic) { traffic_ = traffic; }

  enum class Peers {
    present,
    // This rank runs its list alone: zeros stand for what others would send, and what it sends is dropped. For memory
    // probes.
    absent
  };
  // Collective, unless peers are absent. `schedule` has passed spec::check. Errors: those of `work` and of the group;
  // internal for another number of ranks or chunks than the schedule's, and when slots or messages do not suffice.
  void run(const spec::PipelineSchedule& schedule, PipelineWork& work, Peers peers = Peers::present);

  // This rank's model of a virtual stage that it has.
  const models::Model& model(int virtual_stage) const;

 private:
  // Device memory of one message, and what an operation on it needs.
  struct MessageBuffer {
    std::byte* data = nullptr;
    comm::DeviceCommunicator::Workspace workspace;
  };
  struct Transfer {
    size_t buffer = 0;  // index into buffers_
    comm::DeviceCommunicator::PendingOperation operation;
  };
  struct StageSlot {
    models::Slot slot;
    std::optional<std::pair<int, int>> holds;  // a virtual stage's activations of a micro-batch
  };
  // One run.
  struct Run {
    const spec::PipelineSchedule& schedule;
    PipelineWork& work;
    Peers peers;
    bool is_last(int virtual_stage) const { return virtual_stage == schedule.shape.virtual_stages() - 1; }
    bool is_trained(int virtual_stage) const { return virtual_stage >= schedule.shape.first_trainable; }
  };

  const comm::Grid::Link& link(int peer) const;
  void execute(Run& run);
  void run_action(Run& run, const spec::PipelineStep& step);
  void forward(Run& run, const spec::PipelineStep& step);
  // `defers`: leaves gradients of weights to backward_weight().
  void backward(Run& run, const spec::PipelineStep& step, bool defers);
  void backward_weight(Run& run, const spec::PipelineStep& step);
  // Copies what a computation has made, for send() or, within this rank, take().
  void keep(Run& run, const spec::PipelineStep& step, const Tensor& x);
  void send(Run& run, const spec::PipelineStep& step);
  void receive(Run& run, const spec::PipelineStep& step);
  // The input of a computation.
  void take(Run& run, const spec::PipelineStep& step, const Tensor& into);
  // [T, H] of activations, as a message of `step`'s micro-batch.
  Tensor message(const Run& run, const spec::PipelineStep& step, size_t buffer) const;
  void copy(const Tensor& to, const Tensor& from);
  StageSlot& slot_with(std::optional<std::pair<int, int>> held);
  size_t take_buffer();
  static void release(StageSlot& used);
  void forget();

  ops::Context& context_;
  comm::Group ranks_;
  std::map<int, comm::Grid::Link> links_;  // by rank of the pipeline
  std::vector<const models::Model*> chunks_;
  std::vector<StageSlot> slots_;
  Arena messages_;
  std::vector<MessageBuffer> buffers_;
  std::vector<size_t> free_buffers_;
  std::map<spec::PipelineMessage, size_t> kept_;  // made and not yet sent or used: their buffers
  std::map<spec::PipelineMessage, Transfer> incoming_;
  std::map<int, std::deque<Transfer>> outgoing_;  // by rank: sends under way
  spec::Traffic* traffic_ = nullptr;
};

}  // namespace ingot::train
