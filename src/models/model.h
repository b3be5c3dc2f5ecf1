// The computation of a model family, device-independent. Used by one thread at a time.
//
// Every family is a table in spec/; models/decoder computes all of them (CONTRIBUTING, "A new model family").
#pragma once

#include <memory>
#include <vector>

#include "nn/pass.h"
#include "spec/lora.h"
#include "spec/model.h"
#include "spec/part.h"
#include "tensor/weight_set.h"

namespace ingot::models {

using nn::PassShape;

class Model {
 public:
  virtual ~Model() = default;

  // The sizes of the model, or of its part.
  virtual const spec::ModelSpec& spec() const = 0;

  // For every parameter of spec::parameters, its index among the trainable parameters, or -1. Initially all are frozen.
  // Low-rank weights have their own indices (nn::LoraWeights). `lowest_trainable_layer` is the lowest block that needs
  // a backward, because it or something below it is trainable; the blocks below save nothing.
  virtual void set_trainable(const std::vector<int>& trainable_of_parameter, int64_t lowest_trainable_layer) = 0;

  // normed [T, H]: the final norm's output for every token of the batch.
  virtual void forward(nn::Pass& pass, const Tensor& normed) const = 0;

  // logits [R, V] f32 of rows of normed [R, H]; the row ranges of pass.adapters refer to these rows.
  virtual void logits(nn::Pass& pass, const Tensor& logits, const Tensor& normed) const = 0;

  // losses [T] f32 (0 where a target is -1); targets [T] i32. With pass.training the backward pass runs too: gradients
  // of the plain sum of losses go to the accumulator, and pass.training->saved is used from its start and released
  // again.
  virtual void loss(nn::Pass& pass, const Tensor& losses, const Tensor& targets) const = 0;
};

// Scratch arena bytes of a pass of this shape.
struct PassBytes {
  size_t forward = 0;   // Model::forward and Model::logits
  size_t loss = 0;      // Model::loss without training
  size_t training = 0;  // Model::loss with training, in addition to spec::saved_bytes
};

// A pure function of sizes, used for allocation and for predicting memory. ErrorKind::unsupported for an unknown
// family.
PassBytes pass_bytes(const spec::ModelSpec& spec, const PassShape& shape);

// The model of spec.family over these weights, which are not copied: `weights` must outlive the model. Tables such as
// rotary frequencies are allocated on `device`. For a part of the model the weights are those of spec::held_parameters,
// passes use the part's groups, and only the last stage computes logits and losses. ErrorKind::unsupported for an
// unknown family, and the errors of spec::check for parts.
std::unique_ptr<Model> make_model(const spec::ModelSpec& spec, const WeightSet& weights, Device& device,
                                  const spec::Part& part = {});

}  // namespace ingot::models
