// The decoder-only transformer that every family is: embedding, blocks, final norm, head. What differs between families
// is data (spec::ModelSpec and its parameter table); what the differences mean is in nn/.
#pragma once

#include <vector>

#include "models/model.h"
#include "nn/block.h"
#include "nn/embedding.h"
#include "nn/head.h"
#include "spec/part.h"

namespace ingot::models {

class Decoder : public Model {
 public:
  // The weights are those of spec::held_parameters.
  Decoder(const spec::ModelSpec& spec, const spec::Part& part, const WeightSet& weights, Device& device);

  const spec::ModelSpec& spec() const override { return spec_; }
  void set_trained(const std::vector<int>& trainable_of_parameter, int64_t lowest_layer) override;
  void forward(nn::Pass& pass, const Tensor& normed) const override;
  void logits(nn::Pass& pass, const Tensor& logits, const Tensor& normed) const override;
  void loss(nn::Pass& pass, const Tensor& losses, const Tensor& targets) const override;

 private:
  void train(nn::Pass& pass, const Tensor& losses, const Tensor& targets) const;
  // Final norm, head and loss of the stream behind the last block. False when nothing below is trained; otherwise
  // dstream is assigned the stream's gradient.
  bool train_head(nn::Pass& pass, const Tensor& losses, const Tensor& targets, const Tensor& stream,
                  const Tensor& dstream, bool below) const;

  // The stream before the first block: the embeddings, or what the stage before sends.
  void begin_stream(nn::Pass& pass, const Tensor& stream) const;

  spec::Part part_;
  spec::ModelSpec spec_;  // of the part's sizes
  Buffer frequencies_;    // rotary
  Buffer slopes_;         // ALiBi
  nn::Embedding embedding_;
  std::vector<nn::Block> blocks_;
  nn::Norm final_norm_;
  nn::Head head_;
  int64_t lowest_layer_ = 0;
};

PassBytes decoder_pass_bytes(const spec::ModelSpec& spec, const PassShape& shape);

}  // namespace ingot::models
