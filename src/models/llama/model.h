// The llama family: token embedding, pre-norm blocks of rotary attention and gated MLP, final norm, head.
#pragma once

#include <vector>

#include "models/model.h"
#include "nn/block.h"
#include "nn/embedding.h"
#include "tensor/arena.h"

namespace ingot::models {

class Llama : public Model {
 public:
  Llama(const spec::ModelSpec& spec, const WeightSet& weights, Device& device);

  const spec::ModelSpec& spec() const override { return spec_; }
  void set_trained(const std::vector<int>& trainable_of_parameter, int64_t lowest_layer) override;
  void forward(nn::Pass& pass, const Tensor& normed) const override;
  void logits(nn::Pass& pass, const Tensor& logits, const Tensor& normed) const override;
  void loss(nn::Pass& pass, const Tensor& losses, const Tensor& targets) const override;

 private:
  void train(nn::Pass& pass, const Tensor& losses, const Tensor& targets) const;

  spec::ModelSpec spec_;
  Buffer frequencies_;
  nn::Embedding embedding_;
  std::vector<nn::Block> blocks_;
  nn::Norm final_norm_;
  nn::Linear head_;
  int64_t lowest_layer_ = 0;
};

PassBytes llama_pass_bytes(const spec::ModelSpec& spec, const PassShape& shape);

}  // namespace ingot::models
