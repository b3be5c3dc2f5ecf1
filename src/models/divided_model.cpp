#include "models/divided_model.h"

#include "nn/transfer.h"

namespace ingot::models {

void DividedModel::forward(nn::Pass& pass, const Tensor& output, const Tensor&) const {
  Device& device = pass.ops.device;
  pass.tp = tp_;
  const Arena::Scope scope(pass.ops.scratch);
  Tensor input;
  if (!shard().first()) {
    input = pass.ops.scratch.allocate(output.dtype, output.shape);
    nn::receive_tensor(device, stages_, input, stages_.rank() - 1);
  }
  part_->forward(pass, output, input);
  if (!shard().last()) nn::send_tensor(device, stages_, output, stages_.rank() + 1);
  nn::broadcast_tensor(device, stages_, output, stages_.size() - 1);
}

void DividedModel::logits(nn::Pass& pass, const Tensor& logits, const Tensor& normed) const {
  pass.tp = tp_;
  if (shard().last()) part_->logits(pass, logits, normed);
  nn::broadcast_tensor(pass.ops.device, stages_, logits, stages_.size() - 1);
}

void DividedModel::losses(nn::Pass& pass, const Tensor& losses, const Tensor& targets, const Tensor& normed) const {
  pass.tp = tp_;
  if (shard().last()) part_->losses(pass, losses, targets, normed);
  nn::broadcast_tensor(pass.ops.device, stages_, losses, stages_.size() - 1);
}

}  // namespace ingot::models
