// What Step executes a pipeline schedule with.
#pragma once

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "nn/next_token_loss.h"
#include "train/non_finite_locator.h"
#include "train/step.h"
#include "train/step_schedule.h"

namespace ingot::train {

// The micro-batches of a step or an evaluation on this rank. `losses`: those of the micro-batches with any of the first
// `own` sequences, appended to as they arrive, where Step::has_losses().
class Step::MicroBatches final : public PipelineWork, public nn::PassObserver {
 public:
  MicroBatches(Step& step, std::span<const data::PackedSequence> sequences, std::span<const int64_t> samples,
               size_t each, int count, size_t own, std::vector<LossSum>& losses)
      : step_(step),
        sequences_(sequences),
        samples_(samples),
        each_(each),
        count_(count),
        own_(own),
        losses_(step.has_losses() ? &losses : nullptr) {}

  // For training; `number`: of the step, for dropout.
  void train(int64_t number) {
    const StepSettings& s = step_.settings_;
    training_.emplace(
        nn::Training{*step_.accumulator_, {}, s.recompute, {}, s.seed, static_cast<uint64_t>(number), s.fp8_gradients});
  }

  int64_t tokens(int micro_batch) const override {
    return static_cast<int64_t>(num_sequences(micro_batch)) * step_.settings_.sequence_length /
           (step_.optimizer_state_.share().cp * step_.optimizer_state_.share().shards.front().row_ranks());
  }
  DType activation() const override { return step_.settings_.activation; }

  void begin(int micro_batch) override {
    started_ = micro_batch + 1;
    while (put_ < started_) put_next();
    if (tokens(micro_batch) == 0) return;
    if (follows_backward()) step_.accumulator_->begin_micro_batch(is_final(micro_batch));
  }
  void end(int micro_batch) override {
    if (tokens(micro_batch) > 0) step_.uploader_->done(first_ + micro_batch);
    if (put_ < count_ && put_ == started_) put_next();  // while the device computes
    if (tokens(micro_batch) > 0 && follows_backward()) step_.accumulator_->end_micro_batch();
  }

  void computes(const spec::PipelineStep& step) override {
    if (step_.log_ != nullptr && step.action == spec::PipelineAction::backward_weight)
      step_.log_->compute(Action::backward_weight, step.virtual_stage);
    if (step_.sharded_ != nullptr) step_.sharded_->begin_pass(step_.weight_units(step));
    if (step_.locator_ == nullptr) return;
    const int64_t stages = step_.optimizer_state_.share().shards.front().pp;
    const bool is_forward = step.action == spec::PipelineAction::forward;
    step_.locator_->set_place(is_forward ? step.virtual_stage : 2 * stages - 1 - step.virtual_stage);
  }
  // Takes part in what the data-parallel ranks do together, in their order.
  void skips(const spec::PipelineStep& step) override {
    std::vector<int> units;
    if (step_.sharded_ != nullptr) {
      units = step_.weight_units(step);
      step_.sharded_->begin_pass(units);
    }
    if (follows_backward() && step.action == spec::PipelineAction::backward) {
      std::vector<int64_t> layers;
      for (const int unit : units) layers.push_back(unit - 1);
      step_.accumulator_->empty_micro_batch(is_final(step.micro_batch), layers,
                                            [&](int64_t layer) { step_.sharded_->need(static_cast<int>(layer + 1)); });
    } else {
      for (const int unit : units) step_.sharded_->need(unit);
    }
  }
  void computed() override {
    if (step_.log_ != nullptr) step_.log_->end_compute();
  }
  nn::Pass pass(int micro_batch, bool saves) override {
    const MicroBatch& batch = step_.uploader_->take(first_ + micro_batch);
    nn::Pass pass = step_.pass_over(batch);
    pass.observer = this;
    if (!saves) return pass;
    training_->accumulation_offsets = batch.accumulation_offsets;
    training_->dropout_rows = batch.rows;
    pass.training = &*training_;
    return pass;
  }
  void comes_to(int64_t layer, bool backward) override {
    if (step_.log_ != nullptr) step_.log_->end_compute();
    if (!backward) step_.finish_host_updates(layer);
  }
  void begins(int64_t layer, bool backward) override {
    if (step_.log_ != nullptr) step_.log_->end_compute();
    if (backward && follows_backward()) step_.accumulator_->begin_layer(layer);
    if (step_.log_ != nullptr) step_.log_->compute(backward ? Action::backward : Action::forward, layer);
  }
  const nn::Objective& objective(int micro_batch) override {
    const MicroBatch& batch = step_.uploader_->take(first_ + micro_batch);
    return objective_.emplace(batch.losses, batch.targets);
  }
  void computed_loss(int micro_batch) override {
    const Tensor& losses = step_.uploader_->take(first_ + micro_batch).losses;
    if (training_) ops::sum_squares(step_.context_, step_.loss_squares_, losses, std::exchange(has_loss_, true));
    step_.uploader_->computed(first_ + micro_batch);
  }

  void reduce(int chunk) override {
    if (!follows_backward()) step_.accumulator_->end_chunk(chunk, sequences_.empty());
  }
  void update() override {
    if (!training_) return;
    if (!has_loss_) {  // this rank's losses add nothing to the sum
      const double none = 0;
      step_.device_.copy_from_host(step_.loss_squares_.data, &none, sizeof none);
    }
    step_.accumulator_->end_step(sequences_.empty());
  }

 private:
  // Whether the accumulator follows backward bucket by bucket: without a pipeline, where micro-batches do not overlap.
  bool follows_backward() const { return training_ && step_.grid_.pp.size() == 1; }
  bool is_final(int micro_batch) const { return micro_batch + 1 == count_; }
  size_t num_sequences(int micro_batch) const {
    const size_t begin = std::min(sequences_.size(), static_cast<size_t>(micro_batch) * each_);
    return std::min(each_, sequences_.size() - begin);
  }
  void put_next() {
    const size_t begin = static_cast<size_t>(put_) * each_, count = num_sequences(put_);
    ++put_;
    if (count == 0) return;
    const StepSettings& s = step_.settings_;
    const int64_t unit =
        gradient_unit(static_cast<int64_t>(count), s, step_.optimizer_state_.share(), step_.device_.host_visible());
    const int64_t number = step_.uploader_->put(sequences_.subspan(begin, count),
                                                samples_.empty() ? samples_ : samples_.subspan(begin, count),
                                                s.sequence_length, unit, begin < own_ ? losses_ : nullptr);
    if (begin == 0) first_ = number;
  }

  Step& step_;
  std::span<const data::PackedSequence> sequences_;
  std::span<const int64_t> samples_;
  size_t each_;  // sequences of a micro-batch
  int count_;    // micro-batches; some at the end may be empty
  size_t own_;   // sequences; those after them are padding
  std::vector<LossSum>* losses_;
  std::optional<nn::Training> training_;
  std::optional<nn::NextTokenLoss> objective_;
  int64_t first_ = 0;  // the uploader's number of the first micro-batch
  int started_ = 0;    // micro-batches
  int put_ = 0;        // those that the uploader has, or that are empty
  bool has_loss_ = false;
};

}  // namespace ingot::train
