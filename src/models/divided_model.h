// A model whose shards several ranks have, for inference: on each of them it computes with the others.
#pragma once

#include <memory>

#include "models/model.h"

namespace ingot::models {

// The ranks that compute a model together: stages of a pipeline, each of them of tensor-parallel ranks. Of those of
// comm/grid.h with one data-parallel rank.
struct ModelRanks {
  comm::Group all;
  nn::TensorParallel tp;
  comm::Group stages;  // ranks with the same tensor-parallel rank, by stage
};

// All ranks call the same functions, for the same batches. One batch at a time is in the pipeline: stages share a
// model's memory and not its time. What crosses between stages goes through host memory.
class DividedModel : public InferenceModel {
 public:
  // `part`: this rank's shard.
  DividedModel(std::unique_ptr<InferenceModel> part, const ModelRanks& ranks)
      : part_(std::move(part)), tp_(ranks.tp), stages_(ranks.stages) {}

  const spec::ModelSpec& whole() const override { return part_->whole(); }
  const spec::ModelShard& shard() const override { return part_->shard(); }
  const spec::ModelSpec& spec() const override { return part_->spec(); }
  const std::vector<spec::HeldParameter>& held_parameters() const override { return part_->held_parameters(); }

  // Output, logits and losses are those of the whole model, on every rank. Other errors: those of comm/transport.h.
  void forward(nn::Pass& pass, const Tensor& output, const Tensor& input) const override;
  bool is_recordable(const nn::Pass&) const override { return false; }  // it waits for other ranks
  void logits(nn::Pass& pass, const Tensor& logits, const Tensor& normed) const override;
  int64_t logit_columns(const nn::Pass&, int64_t) const override { return whole().vocab; }
  void losses(nn::Pass& pass, const Tensor& losses, const Tensor& targets, const Tensor& normed) const override;

 private:
  std::unique_ptr<InferenceModel> part_;
  nn::TensorParallel tp_;
  comm::Group stages_;
};

}  // namespace ingot::models
