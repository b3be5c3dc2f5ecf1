// What a run reads before it starts: the model's shape, its tokenizer and the data.
#pragma once

#include "checkpoint/model_source.h"
#include "checkpoint/text_assets.h"
#include "runs/data.h"
#include "spec/model.h"

namespace ingot::runs {

struct RunInputs {
  checkpoint::ModelSource source;  // of the weights, or of the model's shape alone
  spec::ModelSpec model;
  checkpoint::ModelSource text_source;
  checkpoint::TextAssets text;
  RunData data;
};

// The model alone. Errors: those of open_model and read_model_spec; usage for sequences longer than its context.
RunInputs read_run_model(const train::Recipe& recipe);
// All. Errors: also those of load_text and read_run_data, and usage for a recipe without training data.
RunInputs read_run_inputs(train::Recipe& recipe, ThreadPool& threads, const Log& log);

}  // namespace ingot::runs
