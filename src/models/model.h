// A model family's computation, written once for one device. One thread at a time.
//
// A family is a folder here with a class of this interface, its table in spec/, and a line in models/registry.cpp.
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

  // Its sizes; those of its part when it is one.
  virtual const spec::ModelSpec& spec() const = 0;

  // For every parameter of spec::parameters its place among the trained ones, or -1. At the start none is trained.
  // Trained low-rank weights say so themselves (nn::LoraWeights). `lowest_layer` is the lowest block in which, or below
  // which, something is trained: blocks below it have no backward and keep nothing.
  virtual void set_trained(const std::vector<int>& trainable_of_parameter, int64_t lowest_layer) = 0;

  // normed [T, H]: the final norm's output for every token of the batch.
  virtual void forward(nn::Pass& pass, const Tensor& normed) const = 0;

  // logits [R, V] f32 of rows of normed [R, H]; pass.adapters counts those rows.
  virtual void logits(nn::Pass& pass, const Tensor& logits, const Tensor& normed) const = 0;

  // losses [T] f32 (0 where a target is -1); targets [T] i32. With pass.training also the backward pass: gradients of
  // the plain sum of losses go into the sink, and pass.training->saved is used from its start and given back.
  virtual void loss(nn::Pass& pass, const Tensor& losses, const Tensor& targets) const = 0;
};

// Bytes of the scratch arena that a pass of this shape takes.
struct PassBytes {
  size_t forward = 0;   // Model::forward and logits
  size_t loss = 0;      // Model::loss without training
  size_t training = 0;  // Model::loss with training, next to spec::saved_bytes
};

// A pure function of sizes, for allocation and for predicting it. ErrorKind::unsupported for a family that is not
// known.
PassBytes pass_bytes(const spec::ModelSpec& spec, const PassShape& shape);

// The model of spec.family over these weights, which it shares the memory of: `weights` outlives the model. Tables such
// as rotary frequencies are allocated on `device`. Of a part of the model the weights are spec::held_parameters', and
// passes have the part's groups: the last stage alone gives logits and losses. ErrorKind::unsupported for a family that
// is not known, and what spec::check says of parts.
std::unique_ptr<Model> make_model(const spec::ModelSpec& spec, const WeightSet& weights, Device& device,
                                  const spec::Part& part = {});

}  // namespace ingot::models
