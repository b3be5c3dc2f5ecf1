// What a recipe comes to on this machine: sizes, lengths and memory, before anything large is allocated.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/runtime.h"
#include "checkpoint/kept_weights.h"
#include "data/sequence_set.h"
#include "infer/engine.h"
#include "train/recipe.h"
#include "train/step.h"

namespace ingot::app {

// Memory of a run by kind, in bytes.
struct MemoryPlan {
  size_t weights = 0;  // in memory of our own
  size_t mapped = 0;   // weights read in place from the model's files: the system may drop and read them again
  train::TrainedBytes trained;
  train::StepBytes step;
  size_t samples = 0;  // the engine that continues eval.prompts
  size_t copy = 0;     // host memory beyond the total: of the state, from which checkpoints are written while steps run
  size_t total() const;  // without what is mapped
  std::string table() const;
};

struct RunPlan {
  train::Recipe recipe;  // resolved: no auto left, the length in steps
  spec::ModelSpec model;
  std::optional<spec::LoraSpec> lora;
  train::StepSettings step;
  train::OptimizerTypes optimizer_types;
  train::Schedule schedule;
  MemoryPlan memory;
  double flops_per_token = 0;  // useful, causal, at the data's sub-sequence lengths
  int64_t trained_parameters = 0;
  std::optional<infer::EngineSettings> samples;  // for eval.prompts, when there are any
  bool decoded = false;                          // weights are kept as stored and decoded as they are used
  bool micro_auto = false;                       // batch.micro was to be found
  std::string micro_reason;                      // why it is what it is
  bool fits = true;                              // memory.total() is what may be taken or less
  bool background_checkpoints = false;           // written beside the steps behind them
};

// What to do about a run that does not fit.
inline constexpr const char* memory_hint =
    "shorten data.sequence_length, lower batch.micro, set recompute: full, or train an adapter";

// How the recipe keeps the model's matrices.
checkpoint::KeptWeights weights_kept(const train::Recipe& recipe);

// Where weights will lie: what load_model would do with them.
struct WeightPlan {
  size_t copied = 0;
  size_t mapped = 0;
};

// The length of a run in steps. `sequences`: of an epoch, where the recipe's length is in epochs. `filled`: the share
// of their places that tokens take, where it is in tokens.
int64_t steps_of(const train::Recipe& recipe, int64_t sequences, double filled = 1);

// Data that nobody has seen: one epoch of one sequence, full of one document.
data::DatasetStatistics full_sequences(int64_t sequence_length);

// `share`: what rank, of how many. `longest_prompt`: tokens of the longest of eval.prompts; 0 without any.
// Resolves everything that is `auto` and checks what hangs together. `available` is the memory that may be taken of
// `runtime`'s device; what needs more is sized with the smallest micro-batch that may be, and does not fit. Errors:
// usage for a sequence longer than the model's context and for what contradicts.
RunPlan size_run(const train::Recipe& recipe, const spec::ModelSpec& model, const data::DatasetStatistics& data,
                 int64_t longest_prompt, const WeightPlan& weights, size_t available, const Runtime& runtime,
                 const train::Share& share = {});

// Other micro-batches, of `micro` units: what memory steps then take.
void set_micro(RunPlan& plan, int64_t micro);

// The same of a run that is to be. ErrorKind::resource when it does not fit, with what it needs, by kind, and what
// there is.
RunPlan plan_run(const train::Recipe& recipe, const spec::ModelSpec& model, const data::DatasetStatistics& data,
                 int64_t longest_prompt, const WeightPlan& weights, size_t available, const Runtime& runtime,
                 const train::Share& share = {});

}  // namespace ingot::app
