// One optimizer step: forward and backward over micro-batches of accumulation units, as a pipeline schedule orders
// them, gradient norm, clipping, update.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/function_ref.h"
#include "comm/grid.h"
#include "data/packing.h"
#include "models/model.h"
#include "nn/expert_exchange.h"
#include "nn/head_exchange.h"
#include "nn/key_value_gather.h"
#include "nn/key_value_ring.h"
#include "nn/row_exchange.h"
#include "nn/transfer.h"
#include "train/action_log.h"
#include "train/batch_uploader.h"
#include "train/gradient_sync.h"
#include "train/optimizer_state.h"
#include "train/pipeline.h"
#include "train/sharded_weights.h"
#include "train/step_accumulator.h"

namespace ingot::train {

class NonFiniteLocator;

struct StepSettings {
  DType activation = DType::f32;
  bool fp8 = false;                                   // fp8 gemms in the blocks' linear layers
  StorageType fp8_gradients = StorageType::fp8_e4m3;  // with `fp8`: as nn::Training::fp8_gradients
  spec::Recompute recompute = spec::Recompute::none;
  int64_t sequence_length = 0;
  int64_t micro = 1;              // accumulation units in a micro-batch
  int64_t accumulation_unit = 1;  // packed sequences in an accumulation unit (`determinism_unit`)
  // With fixed-point sums (OptimizerDtypes): maximum accumulation units in a step, over all ranks; else 0.
  int64_t accumulation_units = 0;
  spec::PipelineScheduleName schedule = spec::PipelineScheduleName::one_f_one_b;  // of a pipeline (ShardSpec::shards)
  int64_t sequences = 0;  // of a pipeline: maximum sequences in a step, on one data-parallel rank; else unused
  OptimizerSettings optimizer;
  uint64_t seed = 0;  // of dropout
};

struct StepResult {
  double loss = 0;             // mean over the loss tokens
  double grad_norm = 0;        // of the mean gradient, before clipping
  int64_t positions = 0;       // tokens in all sequences of the step, with padding
  int64_t tokens = 0;          // the same without padding
  int64_t loss_tokens = 0;     // tokens whose prediction is in the loss
  double squared_lengths = 0;  // sum of length^2 over sub-sequences, without padding, for FLOPs
  bool skipped = false;        // the gradient was not finite: nothing was updated
  bool retry = false;  // the step exceeded a fixed-point sum's range, which was enlarged: call begin() for it again
};

// Memory of a step besides weights and optimizer state, by kind.
struct StepBytes {
  size_t saved = 0;   // of all micro-batches that a rank keeps, with what they share
  size_t shared = 0;  // of `saved`: what they share
  size_t scratch = 0;
  size_t batch = 0;
  size_t messages = 0;  // of a pipeline
  // Of ranks that exchange heads, or keys and values (context parallelism), or rows (sequence and expert parallelism),
  // or a pipeline's messages, and whose devices the host cannot access: host memory, where this goes through it.
  size_t exchange = 0;
};

// A model, or the parts of it that a rank holds (ShardSpec::shards). The references outlive it.
struct TrainedModel {
  TrainedModel(models::Model& model) : spec(model.spec()), parts{&model} {}
  TrainedModel(const spec::ModelSpec& whole, std::vector<models::Model*> its_parts)
      : spec(whole), parts(std::move(its_parts)) {}

  const spec::ModelSpec& spec;  // of the whole model
  std::vector<models::Model*> parts;
  ShardedWeights* sharded = nullptr;  // where they are gathered (ShardSpec::gathers_weights): the weights of `parts`
};

// Runs optimizer steps and owns their memory, which is allocated once. One thread at a time. The references outlive it.
class Step {
 public:
  // `lowest_trainable_layer`: of the whole model. `update_bytes`: OptimizerState::update_bytes(). `host_visible`: of
  // the device. `share`: of the optimizer state.
  static StepBytes bytes(const spec::ModelSpec& model, const StepSettings& settings, int64_t lowest_trainable_layer,
                         int64_t adapter_rank, bool decoded, int threads, size_t update_bytes, bool host_visible,
                         const ShardSpec& share = {});

  // `optimizer_state` is this rank's share. Collective over the grid. Errors: internal for a grid that does not fit it;
  // those of make_pipeline_schedule.
  Step(Device& device, const ops::Registry& registry, ThreadPool& threads, const TrainedModel& model,
       OptimizerState& optimizer_state, StepSettings settings, bool decoded, const comm::Grid& grid = {});
  ~Step();

  // Enqueues a step on `sequences`, a whole number of accumulation units in order; samples[i] is the number of sequence
  // i in the data set. Ranks call all functions together, each with the sequences of its data-parallel rank
  // (train::rank_sequences; context-parallel ranks have the same), of which there may be none; results are over all
  // ranks' sequences. `step` counts from 1 and selects the random numbers of dropout; `lr` is the step's learning rate.
  // At most `max_in_flight` steps may be in flight. ErrorKind::internal when a trainable tensor got no gradient.
  void begin(int64_t step, double lr, std::span<const data::PackedSequence> sequences,
             std::span<const int64_t> samples);
  // Waits for the oldest in-flight step and returns its result. The device decides whether the step updates the
  // weights. If its gradient was not finite or `retry` is set, the in-flight steps after it updated nothing either and
  // are dropped: begin them again.
  StepResult finish();
  static constexpr size_t max_in_flight = 2;

  // begin() and finish(), repeated while the result has `retry` set.
  StepResult run(int64_t step, double lr, std::span<const data::PackedSequence> sequences,
                 std::span<const int64_t> samples);

  // For a skipped step, while no step is in flight: runs it again, checks the results of every op, and returns the
  // first op that produced a non-finite value, with its layer (NonFiniteLocator::found), or an empty string if there
  // was none. Overwrites gradients. `weights` are the model's. With several ranks, returns the finding of the earliest
  // pipeline stage in forward, else of the latest in backward, of these the earliest op's, and of these the lowest
  // rank's.
  std::string locate_non_finite(int64_t step, std::span<const data::PackedSequence> sequences,
                                std::span<const int64_t> samples, const WeightSet& weights);

  // Runs forward and backward over a batch as in begin(), without the update and without communication, to find out
  // whether the memory suffices. Ranks call it together, while no step is in flight. Overwrites gradients. Errors:
  // resource when this rank runs out of memory.
  void probe_memory(std::span<const data::PackedSequence> sequences, std::span<const int64_t> samples);

  // The losses of `sequences`, summed over the loss tokens of each, or of each part where Share::slices or
  // context-parallel ranks divide them, in order, without training. The ranks that have one copy of the
  // model call it together, at ZeRO stage 3 all ranks, and one of those with the last stage gets the losses; others get
  // none. Context-parallel ranks call it together, and the first of them gets the losses. Only while no step is in
  // flight.
  std::vector<double> evaluate(std::span<const data::PackedSequence> sequences);

  // After masters were written: updates the weights that the model computes with, on all ranks.
  void refresh_weights();
  // The master of OptimizerState::tensors()[index], all that this rank's copy of the weight has. Where data-parallel
  // ranks shard the state, it is gathered in `memory`. The data-parallel ranks call it together.
  Tensor master(size_t index, Buffer& memory);

  ops::Context& context() { return context_; }
  const comm::Group& ranks() const { return grid_.world; }
  const comm::Grid& grid() const { return grid_; }
  // The sum of the losses that evaluate() has returned on all ranks, in the order of their sequences. Collective.
  double sum_in_order(std::span<const double> losses) const;
  // What this rank has exchanged with others so far, as step_traffic() counts it.
  const spec::Traffic& traffic() const { return traffic_; }
  // What this rank does is recorded in `log`, which outlives this or its next call; null: none.
  void set_log(ActionLog* log);
  // Seconds that this rank has waited for others so far.
  double waited_s() const { return grid_.waited_s(); }
  const StepSettings& settings() const { return settings_; }
  // Peak use so far of the memory that bytes() predicts, except messages.
  StepBytes peak() const;

 private:
  struct InFlightStep {
    StepResult result;            // without `loss`
    std::vector<LossSum> losses;  // of this rank's tokens; those that have arrived
    int64_t updates = 0;          // OptimizerState::updates() before the step
    size_t decision = 0;          // index into decisions_
    bool undecided = false;       // whether decisions_[decision] has to be waited for
  };
  struct UpdateDecision {
    PinnedBuffer decision;  // output of ops::decide_update
    PinnedBuffer ranges;    // with fixed-point sums: the step's ranges, and (largest) its largest contributions
    PinnedBuffer largest;
    std::unique_ptr<Event> arrived;
  };
  // The micro-batches of a step or an evaluation, with which a schedule is executed.
  class MicroBatches;

  // What a computation needs of `sharded_`.
  std::vector<int> weight_units(const spec::PipelineStep& step) const;
  bool has_losses() const;  // on the last stage's first tensor-parallel rank
  // The sums of all context-parallel ranks, in order, on the first of them; none on others.
  std::vector<double> in_order(const std::vector<LossSum>& own) const;
  nn::Pass pass_over(const MicroBatch& batch);
  const spec::PipelineSchedule& schedule(int micro_batches, bool trains);
  int scheduled_micro_batches(size_t sequences) const;
  // Expert-parallel ranks compute equal numbers of sequences, since each computes for the tokens of the others: the
  // largest number of any data-parallel rank. The sequences after a rank's own are padding, which adds no gradient.
  bool pads_sequences() const { return optimizer_state_.share().ep() > 1; }
  std::vector<data::PackedSequence> padded(std::span<const data::PackedSequence> sequences, size_t count) const;
  void enqueue(InFlightStep& in_flight, int64_t step, double lr, std::span<const data::PackedSequence> sequences,
               std::span<const int64_t> samples);
  void count(StepResult& result, std::span<const data::PackedSequence> sequences) const;
  // Forward and backward over all micro-batches; their losses are appended to `losses` as they arrive.
  void accumulate(std::vector<LossSum>& losses, int64_t step, std::span<const data::PackedSequence> sequences,
                  std::span<const int64_t> samples, Pipeline::Peers peers = Pipeline::Peers::present);
  void sum_squares();
  // With ShardSpec::sum_slices above 1: writes the sum of squares of each of a parameter's blocks in this rank's shard
  // to blocks_, from `next` on, and returns the number after the last.
  int64_t sum_square_blocks(const TrainedParameter& t, const Tensor& gradient, int64_t next);
  void decide(double loss_tokens);
  void update(double lr);
  void update_one(size_t index, const Bucket& bucket, const UpdateAttributes& attributes);
  // Updates on the host are done layer by layer in the next step's forward pass: those of parameters up to `layer` now,
  // so that their weights are there, also what other ranks update of them. The ranks that gather them call it together
  // for the same buckets.
  void finish_host_updates(int64_t layer = INT64_MAX);
  void abandon_host_updates();
  size_t buckets_up_to(int64_t layer) const;
  void rewind(const UpdateDecision& update);
  bool exceeded_range(const UpdateDecision& update) const;
  // Calls `work`; when it throws, drops all in-flight steps and pending operations.
  void run_or_drop(FunctionRef<void()> work);
  void refuse_while_in_flight(const char* what) const;

  Device& device_;
  const spec::ModelSpec& model_;
  ShardedWeights* sharded_;  // null: the weights are there
  OptimizerState& optimizer_state_;
  StepSettings settings_;
  Arena scratch_;
  std::vector<Arena> saved_;  // one for each micro-batch that a pipeline's rank keeps
  Arena shared_;              // what these share
  Arena batch_;
  ops::Context context_;
  comm::Grid grid_;
  spec::Traffic traffic_;
  std::optional<nn::DeviceSum> tp_sum_;                // where grid_.on_device.tp is
  std::optional<nn::HeadExchange> head_exchange_;      // with context-parallel ranks: this
  std::optional<nn::KeyValueGather> key_values_;       // or this
  std::optional<nn::KeyValueRing> ring_;               // or this
  std::optional<nn::RowExchange> row_exchange_;        // with sequence parallelism
  std::optional<nn::ExpertExchange> expert_exchange_;  // with expert-parallel ranks
  GradientSync gradient_sync_;
  std::unique_ptr<StepAccumulator> accumulator_;
  std::optional<Pipeline> pipeline_;
  std::map<std::pair<int, bool>, spec::PipelineSchedule> schedules_;  // by micro-batches, and whether they train
  Tensor squares_;       // [num_trainable()] f64: sums of squares of their gradients
  Tensor blocks_;        // f64, where ranks shard the state: the same of this rank's blocks
  Tensor loss_squares_;  // [1] f64: sum of the squared losses
  Tensor decision_;      // [3] f64: output of ops::decide_update
  size_t updated_;       // the number of buckets whose updates of the last step are done, where the host does them
  std::optional<BatchUploader> uploader_;
  std::array<UpdateDecision, max_in_flight> decisions_;
  std::deque<InFlightStep> in_flight_;
  ActionLog* log_ = nullptr;
  NonFiniteLocator* locator_ = nullptr;  // while a step is run again
  bool alone_ = false;                   // during a memory probe: layers do not communicate
};

}  // namespace ingot::train
