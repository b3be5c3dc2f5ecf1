// The decoder-only transformer that all families use: embedding, blocks, final norm, head. Families differ in data only
// (spec::ModelSpec and the parameter table); the layers are in nn/.
#pragma once

#include <vector>

#include "models/model.h"
#include "nn/block.h"
#include "nn/embedding.h"
#include "nn/head.h"
#include "spec/model_shard.h"

namespace ingot::models {

class Decoder : public Model {
 public:
  // `weights`: by index in the whole model; those of spec::held_parameters are there.
  Decoder(const spec::ModelSpec& spec, const spec::ModelShard& shard, const WeightSet& weights, Device& device);

  const spec::ModelSpec& whole() const override { return whole_; }
  const spec::ModelShard& shard() const override { return shard_; }
  const spec::ModelSpec& spec() const override { return spec_; }
  const std::vector<spec::HeldParameter>& held_parameters() const override { return held_; }
  void set_trainable(const std::vector<int>& trainable_of_parameter, int64_t lowest_trainable_layer,
                     bool input_gradient) override;
  std::vector<int> forward_weight_units() const override;
  std::vector<int> backward_weight_units() const override;
  void forward(nn::Pass& pass, const Tensor& output, const Tensor& input) const override;
  bool is_recordable(const nn::Pass& pass) const override;
  void logits(nn::Pass& pass, const Tensor& logits, const Tensor& normed) const override;
  int64_t logit_columns(const nn::Pass& pass, int64_t rows) const override;
  void losses(nn::Pass& pass, const Tensor& losses, const Tensor& targets, const Tensor& normed) const override;
  void forward(nn::Pass& pass, Slot& slot) const override;
  void loss(nn::Pass& pass, Slot& slot, const nn::Objective& objective) const override;
  void backward(nn::Pass& pass, Slot& slot) const override;

 private:
  // Runs the blocks from the lowest trainable one upwards, saving what backward needs, and sets slot.residual.
  void forward_saving(nn::Pass& pass, Slot& slot) const;
  // The residual after the first `count` blocks, which save nothing: in `last` if that is given, else in scratch, of
  // which the caller has a scope. `input`: of a later stage.
  Tensor forward_blocks(nn::Pass& pass, size_t count, const Tensor& input, const Tensor& last) const;

  // Before the computations of block `layer`; -1: before the blocks, their number: after. Waits for its weights, where
  // the pass gathers them.
  void begin_layer(nn::Pass& pass, int64_t layer, bool backward = false) const {
    if (pass.observer != nullptr) pass.observer->comes_to(first_block_ + layer, backward);
    if (pass.weights != nullptr) need_weights(*pass.weights, layer);
    if (pass.observer != nullptr) pass.observer->begins(first_block_ + layer, backward);
  }
  void need_weights(nn::WeightGatherer& weights, int64_t layer) const;
  // Whether no gradient goes below the output head.
  bool only_head_trainable() const;
  // Whether a block, not the first, saves the same tensors as the one before it.
  bool like_previous(size_t block) const { return like_previous_[block] != 0; }
  std::vector<spec::SavedTensor> tensors_of(size_t block, DType activation) const;

  // Rotary frequencies [pairs], and ALiBi's slopes of the shard's heads, on the device; absent in layers without them.
  Tensor frequencies(const spec::Attention& attention, Device& device);
  Tensor slopes(const spec::Attention& whole, Device& device);
  Tensor upload(Device& device, std::vector<float> values);

  spec::ModelSpec whole_;
  spec::ModelShard shard_;
  spec::ModelSpec spec_;  // with the sizes of the shard
  std::vector<spec::HeldParameter> held_;
  // What frequencies() and slopes() have uploaded; layers with equal values share one.
  struct Table {
    std::vector<float> values;
    Buffer buffer;
  };
  std::vector<Table> tables_;
  nn::Embedding embedding_;
  int64_t first_block_ = 0;  // its number in the whole model
  std::vector<nn::Block> blocks_;
  std::vector<char> like_previous_;  // by block
  nn::Norm final_norm_;
  nn::Head head_;
  std::vector<int64_t> vocabulary_parts_;  // tokens of each tensor-parallel rank's part of the head
  int64_t lowest_trainable_layer_ = 0;
  bool input_gradient_ = false;
};

PassBytes decoder_pass_bytes(const spec::ModelSpec& spec, const PassShape& shape);

}  // namespace ingot::models
