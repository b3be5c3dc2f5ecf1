#include "runs/inputs.h"

#include <fmt/format.h>

#include "base/error.h"
#include "checkpoint/load.h"

namespace ingot::runs {

RunInputs read_run_model(const train::Recipe& recipe) {
  RunInputs inputs;
  inputs.source = checkpoint::open_model(recipe.model);
  inputs.model = checkpoint::read_model_spec(inputs.source);
  if (recipe.data.sequence_length > inputs.model.context) {
    throw_hint(ErrorKind::usage, fmt::format("set data.sequence_length to {} or less", inputs.model.context),
               "data.sequence_length {} is more than the model's context of {}", recipe.data.sequence_length,
               inputs.model.context);
  }
  return inputs;
}

RunInputs read_run_inputs(train::Recipe& recipe, ThreadPool& threads, const Log& log) {
  RunInputs inputs = read_run_model(recipe);
  train::require_training_data(recipe);
  inputs.text_source = recipe.tokenizer ? checkpoint::open_model(*recipe.tokenizer) : inputs.source;
  inputs.text = checkpoint::load_text(inputs.text_source);
  inputs.data = read_run_data(recipe, inputs.text, inputs.model.vocab, threads, log);
  return inputs;
}

}  // namespace ingot::runs
