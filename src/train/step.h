// One optimizer step: micro-batches over units, gradient norm, clipping, AdamW.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/function_ref.h"
#include "data/packing.h"
#include "models/model.h"
#include "train/exchange.h"
#include "train/feed.h"
#include "train/sink.h"
#include "train/trained.h"

namespace ingot::train {

struct OptimizerSettings {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0;
  double clip_grad_norm = 1;  // 0: no clipping
};

struct StepSettings {
  DType activation = DType::f32;
  bool fp8 = false;                           // the blocks' linear layers multiply in fp8
  Storage fp8_gradients = Storage::fp8_e4m3;  // then: as nn::Training
  spec::Recompute recompute = spec::Recompute::none;
  int64_t sequence_length = 0;
  int64_t micro = 1;  // units in a micro-batch
  int64_t unit = 1;   // packed sequences in a unit of work (`determinism_unit`)
  int64_t units = 0;  // of fixed sums (OptimizerTypes): the most units a step has; else 0
  OptimizerSettings optimizer;
  uint64_t seed = 0;  // of dropout
};

struct StepResult {
  double loss = 0;             // sum over counted tokens / their number
  double grad_norm = 0;        // of the mean gradient, before clipping
  int64_t positions = 0;       // in all sequences of the step, padding too
  int64_t tokens = 0;          // of them, those of the data
  int64_t counted = 0;         // tokens that count in the loss
  double squared_lengths = 0;  // sum over sub-sequences, without padding, of length^2, for FLOPs
  bool skipped = false;        // the gradient was not finite: nothing was updated
  bool again = false;          // a fixed sum's range was too small for the step and is larger now: begin it again
};

// Memory of steps besides weights and optimizer state, by kind.
struct StepBytes {
  size_t saved = 0;
  size_t scratch = 0;
  size_t batch = 0;
};

// Owns the memory of steps, made once. One thread at a time. The references outlive it.
class Step {
 public:
  static StepBytes bytes(const spec::ModelSpec& model, const StepSettings& settings, int64_t lowest_layer,
                         int64_t adapter_rank, bool decoded, int threads);

  // `trained` is this rank's share.
  Step(Device& device, const ops::Registry& registry, ThreadPool& threads, models::Model& model, Trained& trained,
       StepSettings settings, bool decoded, const comm::Group& ranks = {});

  // Gives the device the work of a step on `sequences`, a whole number of units, in order; samples[i] is the number
  // that names sequence i in the data set. Ranks call everything together, each with its sequences (train::share_of),
  // which may be none; results are of all ranks' sequences. `step` counts from 1 and names the streams of dropout; `lr`
  // is its learning rate. At most `most_begun` may be begun and not finished. ErrorKind::internal when a trained tensor
  // got no gradient.
  void begin(int64_t step, double lr, std::span<const data::PackedSequence> sequences,
             std::span<const int64_t> samples);
  // Waits for what the first step that is not finished gave. Whether it updates is decided on the device; when its
  // gradient was not finite, or it is to be begun again, those begun after it have updated nothing either and are
  // forgotten: begin them again.
  StepResult finish();
  static constexpr size_t most_begun = 2;

  // Both, until it need not be begun again.
  StepResult run(int64_t step, double lr, std::span<const data::PackedSequence> sequences,
                 std::span<const int64_t> samples);

  // For a step that was skipped, when none is begun: runs it again with every op's results looked at, and tells the
  // first op that gave a value which is not finite, with its layer (FaultFinder::found); empty when there was none.
  // Overwrites gradients. `weights` are the model's. Of several ranks' findings, that of the first.
  std::string first_fault(int64_t step, std::span<const data::PackedSequence> sequences,
                          std::span<const int64_t> samples, const WeightSet& weights);

  // Forward and backward over a batch as begin's, without an update and without what ranks exchange: what memory a step
  // takes. Ranks call it together. When none is begun. Overwrites gradients. Errors: resource when there is not that
  // much, on this rank.
  void rehearse(std::span<const data::PackedSequence> sequences, std::span<const int64_t> samples);

  struct Loss {
    double sum = 0;  // over counted tokens
    int64_t counted = 0;
  };
  // Without training, at most a micro-batch at a time; when no step is begun. Of this rank alone.
  Loss evaluate(std::span<const data::PackedSequence> sequences);

  // After masters were written: the weights the model computes with follow them, on all ranks.
  void refresh_weights();
  // Tensor `place`'s master, whole; for a device's memory of its own, `memory` has it.
  Tensor master(size_t place, Buffer& memory);

  ops::Context& context() { return context_; }
  const comm::Group& ranks() const { return ranks_; }
  const StepSettings& settings() const { return settings_; }
  // The most that was used so far of what bytes() said.
  StepBytes peak() const { return {saved_.peak(), scratch_.peak(), batch_.peak()}; }

 private:
  struct Begun {
    StepResult result;           // without loss
    std::vector<double> losses;  // of this rank's sequences: those that have come
    int64_t updates = 0;         // before it
    size_t verdict = 0;          // its place in verdicts_
    bool undecided = false;      // whether there is a verdict to wait for
  };
  struct Verdict {
    HostBuffer decision;  // ops::decide_update's
    HostBuffer ranges;    // of fixed sums: the step's, and the largest contributions
    HostBuffer largest;
    std::unique_ptr<Event> arrived;
  };
  nn::Pass pass_over(const MicroBatch& batch);
  void enqueue(Begun& begun, int64_t step, double lr, std::span<const data::PackedSequence> sequences,
               std::span<const int64_t> samples);
  void count(StepResult& result, std::span<const data::PackedSequence> sequences) const;
  // Forward and backward over all micro-batches; losses go behind `losses` as they come.
  void accumulate(std::vector<double>& losses, int64_t step, std::span<const data::PackedSequence> sequences,
                  std::span<const int64_t> samples);
  void compute(const MicroBatch& batch, int64_t step, bool first);
  void sum_squares();
  void decide(double counted);
  void update(double lr);
  void start_over(const Verdict& verdict);
  bool out_of_range(const Verdict& verdict) const;
  // Calls `work`; when it throws, nothing that was begun is left.
  void whole(FunctionRef<void()> work);
  void refuse_while_begun(const char* what) const;

  Device& device_;
  models::Model& model_;
  Trained& trained_;
  StepSettings settings_;
  Arena scratch_;
  Arena saved_;
  Arena batch_;
  ops::Context context_;
  comm::Group ranks_;
  Exchange exchange_;
  std::unique_ptr<StepSink> sink_;
  Tensor squares_;       // [trained tensors] f64: of their gradients
  Tensor blocks_;        // f64, where ranks share the state: of this rank's blocks of them
  Tensor loss_squares_;  // [1] f64
  Tensor decision_;      // [3] f64: ops::decide_update's
  std::optional<Feed> feed_;
  std::array<Verdict, most_begun> verdicts_;
  std::deque<Begun> begun_;
};

}  // namespace ingot::train
