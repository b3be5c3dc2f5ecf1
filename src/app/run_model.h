// The model that a run trains, in memory: its weights, what is trained of it, and the optimizer's state before the
// first step.
#pragma once

#include <memory>
#include <string>

#include "app/run_plan.h"
#include "app/runtime.h"
#include "checkpoint/load.h"
#include "models/model.h"
#include "train/step.h"
#include "train/trained.h"

namespace ingot::app {

// Where its weights would lie.
WeightPlan plan_weights(const train::Recipe& recipe, Runtime& runtime, const checkpoint::ModelSource& source,
                        const spec::ModelSpec& model);

struct RunModel {
  std::unique_ptr<checkpoint::LoadedModel> loaded;  // what the others refer to
  std::unique_ptr<models::Model> model;
  std::unique_ptr<train::Trained> trained;
  std::string base;  // what was begun with, for run_identity

  // The weights that are computed with and their masters agree from here on. Ranks call it together.
  void begin(train::Step& step);
};

// Random weights, or those of `source`, as the recipe says; of what is trained a rank's share. Errors: those of
// load_model.
RunModel make_run_model(const RunPlan& plan, Runtime& runtime, const checkpoint::ModelSource& source,
                        const train::Share& share = {});

}  // namespace ingot::app
