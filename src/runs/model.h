// The model of a training run in memory: its weights and the optimizer state before the first step.
#pragma once

#include <memory>
#include <string>

#include "checkpoint/load.h"
#include "models/model.h"
#include "runs/plan.h"
#include "runtime/runtime.h"
#include "train/optimizer_state.h"
#include "train/step.h"

namespace ingot::runs {

struct WeightPlanOptions {
  bool staged = false;          // ranks exchange weights through other host memory (train::sharded_weight_bytes)
  bool may_lack_files = false;  // weights whose files are missing are planned by the model's shape, as copied
};
// How much of the weights of share.shards would be copied, and how much mapped.
WeightPlan plan_weights(const train::Recipe& recipe, runtime::Runtime& runtime, const checkpoint::ModelSource& source,
                        const spec::ModelSpec& model, const train::ShardSpec& share = {},
                        const WeightPlanOptions& planned = {});

// What one rank has.
struct RunModel {
  std::unique_ptr<Device> host;                       // with optimizer state in host memory (parallel.offload)
  std::unique_ptr<checkpoint::LoadedModel> loaded;    // owns the weights to which the others refer
  std::unique_ptr<train::ShardedWeights> sharded;     // where they are gathered: owns them instead
  std::vector<std::unique_ptr<models::Model>> parts;  // of ShardSpec::shards
  std::unique_ptr<train::OptimizerState> optimizer_state;
  std::string base;  // identifies the initial weights, for run_identity

  const WeightSet& weights() const { return sharded ? sharded->weights() : loaded->weights; }
  // The argument of train::Step.
  train::TrainedModel trained() const;
  // Makes the weights used in computation and their master copies agree. Collective over the ranks.
  void begin(train::Step& step);
};

// Creates random weights, or loads those of `source`, as the recipe says: of plan.share. Collective over the ranks of
// the run. Errors: those of load_model.
RunModel make_run_model(const RunPlan& plan, runtime::Runtime& runtime, const checkpoint::ModelSource& source,
                        const comm::Grid& grid = {});

}  // namespace ingot::runs
