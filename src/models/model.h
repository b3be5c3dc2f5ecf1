// The computation of a model family, device-independent. Used by one thread at a time.
//
// Every family is a table in spec/; models/decoder computes all of them (CONTRIBUTING, "A new model family").
#pragma once

#include <memory>
#include <vector>

#include "models/slot.h"
#include "nn/objective.h"
#include "nn/pass.h"
#include "spec/lora.h"
#include "spec/model.h"
#include "spec/model_shard.h"
#include "tensor/weight_set.h"

namespace ingot::models {

using nn::PassShape;

// A model, or a shard of one, that computes and does not learn.
class InferenceModel {
 public:
  virtual ~InferenceModel() = default;

  virtual const spec::ModelSpec& whole() const = 0;   // the whole model's sizes
  virtual const spec::ModelShard& shard() const = 0;  // which part of it this is
  virtual const spec::ModelSpec& spec() const = 0;    // this part's sizes
  // Its parameters, in the order of spec::parameters(whole()).
  virtual const std::vector<spec::HeldParameter>& held_parameters() const = 0;

  // output [T, H]: the final norm's output for every token of the batch; on stages before the last, what the next one
  // takes as its input [T, H].
  virtual void forward(nn::Pass& pass, const Tensor& output, const Tensor& input = {}) const = 0;

  // Whether the launches of `forward` depend on the shapes of the batch alone and nothing waits for the device, so that
  // they can be recorded and replayed (Device::record).
  virtual bool is_recordable(const nn::Pass& pass) const = 0;

  // logits [R, V] f32 of rows of normed [R, H], of the whole vocabulary on each of pass.tp's ranks; the row ranges of
  // pass.adapters refer to these rows. Only on the last stage. They may have logit_columns() columns instead.
  virtual void logits(nn::Pass& pass, const Tensor& logits, const Tensor& normed) const = 0;
  // The columns with which logits of `rows` rows are computed fastest: V or, with padding (ops/matmul.h), up to
  // ops::padded_columns(V).
  virtual int64_t logit_columns(const nn::Pass& pass, int64_t rows) const = 0;
  // losses [T] f32 of the batch's normed [T, H], as nn::NextTokenLoss. Only on the last stage.
  virtual void losses(nn::Pass& pass, const Tensor& losses, const Tensor& targets, const Tensor& normed) const = 0;
};

class Model : public InferenceModel {
 public:
  // For every parameter of the whole model, its index among the trainable parameters, or -1. Initially all are frozen.
  // Low-rank weights have their own indices (nn::LoraWeights). `lowest_trainable_layer` is the lowest block that needs
  // a backward, because it or something below it is trainable; the blocks below save nothing. `input_gradient`: of a
  // later stage of a pipeline, whether an earlier one has trainable parameters, so that backward goes down to the
  // stage's input.
  virtual void set_trainable(const std::vector<int>& trainable_of_parameter, int64_t lowest_trainable_layer,
                             bool input_gradient = false) = 0;

  // With pass.weights: the units that a forward pass with its loss needs, in order, and those that backward needs
  // (nn/weight_gatherer.h).
  virtual std::vector<int> forward_weight_units() const = 0;
  virtual std::vector<int> backward_weight_units() const = 0;

  // Training and evaluation during it, in this order for each micro-batch; those of several micro-batches may
  // interleave, with one slot each. A stage of a pipeline computes its part of the model; its caller moves what crosses
  // the boundaries: Slot::input in, Slot::residual out, and in backward Slot::dresidual in and out.
  //
  // Runs the blocks. With pass.training the slot keeps what backward needs. The slot is empty, except for a later
  // stage's input. ErrorKind::internal without that.
  using InferenceModel::forward;
  virtual void forward(nn::Pass& pass, Slot& slot) const = 0;
  // The objective over the final norm's output and, with pass.training, its gradient down to the last block's output.
  // On stages before the last it does nothing.
  virtual void loss(nn::Pass& pass, Slot& slot, const nn::Objective& objective) const = 0;
  // With pass.training: the rest of the backward pass, to the lowest trainable layer or, with input_gradient, to the
  // stage's input. The caller clears the slot.
  virtual void backward(nn::Pass& pass, Slot& slot) const = 0;
};

// Scratch arena bytes of a pass of this shape.
struct PassBytes {
  size_t forward = 0;  // Model::forward in both forms, and Model::logits
  // Model::loss holds these beside the objective's own scratch, the gradient with training only.
  size_t loss_input = 0;
  size_t loss_gradient = 0;
  size_t backward = 0;  // Model::backward, and what Model::loss needs after the objective
};

// A pure function of sizes, used for allocation and for predicting memory. ErrorKind::unsupported for an unknown
// family.
PassBytes pass_bytes(const spec::ModelSpec& spec, const PassShape& shape);

// The model of spec.family over these weights, which are not copied: `weights` must outlive the model. Tables such as
// rotary frequencies are allocated on `device`. `weights`: by index of spec::parameters(spec); for a shard of the model
// those of spec::held_parameters suffice. Its passes use the shard's groups, and only the last stage computes logits
// and losses.
// ErrorKind::unsupported for an unknown family, and the errors of spec::check for shards.
std::unique_ptr<Model> make_model(const spec::ModelSpec& spec, const WeightSet& weights, Device& device,
                                  const spec::ModelShard& shard = {});

}  // namespace ingot::models
