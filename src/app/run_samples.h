// The samples of a run: what the model makes of the recipe's eval.prompts while it is trained.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "app/run_data.h"
#include "app/run_plan.h"
#include "app/runtime.h"
#include "checkpoint/text_assets.h"
#include "infer/engine.h"
#include "models/model.h"
#include "train/events.h"

namespace ingot::app {

// The tokens of each of eval.prompts: what a user says, rendered by the chat template with the words that open an
// answer, where the training data are rendered by it; else the plain text. Errors: not_found for prompts without a
// tokenizer.
std::vector<std::vector<int32_t>> encode_prompts(const train::Recipe& recipe, const checkpoint::TextAssets& text,
                                                 const RunData& data);

// Continues prompts with the weights as they are, at an evaluation. What it is made of outlives it.
class Sampler {
 public:
  // `prompts`: of encode_prompts. Does nothing where the plan has no engine for them.
  Sampler(Runtime& runtime, const models::Model& model, const checkpoint::TextAssets& text, const RunPlan& plan,
          std::vector<std::vector<int32_t>> prompts, const nn::Adapter* adapter);
  void run(int64_t step, train::Observer& observer);

 private:
  const checkpoint::TextAssets& text_;
  const RunPlan& plan_;
  std::vector<std::vector<int32_t>> prompts_;
  const nn::Adapter* adapter_;
  std::optional<infer::Engine> engine_;
};

}  // namespace ingot::app
