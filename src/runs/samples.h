// The samples of a run: generated continuations of the recipe's eval.prompts during training.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "checkpoint/text_assets.h"
#include "infer/engine.h"
#include "models/model.h"
#include "runs/data.h"
#include "runs/plan.h"
#include "runtime/runtime.h"
#include "train/events.h"

namespace ingot::runs {

// The tokens of each of eval.prompts. If the training data are rendered by the chat template, the prompt is rendered as
// a user's message with the generation prompt; else it is plain text. Errors: not_found for prompts without a
// tokenizer.
std::vector<std::vector<int32_t>> encode_prompts(const train::Recipe& recipe, const checkpoint::TextAssets& text,
                                                 const RunData& data);

// Generates from the prompts with the current weights at an evaluation. The constructor's arguments must outlive it.
class Sampler {
 public:
  // `prompts`: from encode_prompts. Does nothing when the plan has no engine for them.
  Sampler(runtime::Runtime& runtime, const models::InferenceModel& model, const checkpoint::TextAssets& text,
          const RunPlan& plan, std::vector<std::vector<int32_t>> prompts, const nn::Adapter* adapter);
  void run(int64_t step, train::Observer& observer);

 private:
  const checkpoint::TextAssets& text_;
  const RunPlan& plan_;
  std::vector<std::vector<int32_t>> prompts_;
  const nn::Adapter* adapter_;
  std::optional<infer::Engine> engine_;
};

}  // namespace ingot::runs
