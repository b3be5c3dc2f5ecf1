// Resolves a recipe for this machine: sizes, lengths and memory, before anything large is allocated.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "checkpoint/weight_storage.h"
#include "data/sequence_set.h"
#include "infer/engine.h"
#include "runtime/runtime.h"
#include "train/recipe.h"
#include "train/step.h"

namespace ingot::runs {

// Memory of a run by kind, in bytes.
struct MemoryPlan {
  size_t weights = 0;   // in allocated memory; where they are gathered (ShardSpec::gathers_weights) a rank's share
  size_t gathered = 0;  // the memory that weights are gathered into
  // Host memory, not in total(): for gathering, and of weights that are not on the device (parallel.offload: weights).
  size_t staging = 0;
  size_t offloaded = 0;
  size_t mapped = 0;  // weights read in place from the model's files: the system may evict and reread them
  train::OptimizerStateBytes optimizer_state;  // `offloaded` is host memory, not in total()
  size_t host_update = 0;                      // likewise: what the CPU's updates need besides
  train::StepBytes step;                       // its `exchange` is host memory, not in total()
  // With expert-parallel ranks: what of `step`, which is for any routing, is used where tokens select all experts
  // equally often.
  std::optional<train::StepBytes> balanced;
  // Scratch of ops whose size does not depend on shapes: the thread pool's on a CPU, that of vendors' libraries on a
  // GPU.
  size_t workspace = 0;
  size_t samples = 0;  // engine that generates the samples of eval.prompts
  size_t copy = 0;     // host memory, not in total(): snapshot of the state for writing checkpoints in the background
  bool host_visible = true;  // of the device
  bool staged = false;       // ranks exchange device memory through other host memory
  size_t total() const;      // without mapped weights
  // Host memory that is not in total(), without `copy`.
  size_t on_host() const {
    return offloaded + staging + optimizer_state.offloaded + host_update + (staged ? step.exchange : 0);
  }
  std::string table() const;
};

struct RunPlan {
  train::Recipe recipe;  // resolved: no `auto` left, the length in steps
  spec::ModelSpec model;
  std::optional<spec::LoraSpec> lora;
  train::StepSettings step;
  train::OptimizerDtypes optimizer_types;
  train::Schedule schedule;
  MemoryPlan memory;
  std::vector<std::vector<size_t>> weight_units;  // as in WeightPlan
  double flops_per_token = 0;                     // useful FLOPs, causal attention, at the data's sub-sequence lengths
  int64_t trainable_parameters = 0;
  std::optional<infer::EngineSettings> samples;  // engine for eval.prompts, when there are any
  train::ShardSpec share;                        // what this rank stores
  bool decoded = false;                 // weights are not stored in the activations' type, and are decoded on use
  bool micro_batch_auto = false;        // the recipe has batch.micro: auto
  std::string micro_batch_reason;       // why the micro-batch has its size
  bool fits = true;                     // memory.total() is at most the available memory
  bool background_checkpoints = false;  // checkpoints are written in the background while the next steps run
};

// The hint for a run that does not fit.
inline constexpr const char* memory_hint =
    "shorten data.sequence_length, lower batch.micro, set recompute: full, or train an adapter";

// The storage types of the model's matrices according to the recipe.
checkpoint::WeightStorage weight_storage_of(const train::Recipe& recipe);

// Memory of the weights as load_model would place them.
struct WeightPlan {
  size_t copied = 0;
  size_t mapped = 0;
  size_t gathered = 0;  // as in MemoryPlan
  size_t staging = 0;
  size_t offloaded = 0;
  bool staged = false;                          // ranks exchange device memory through other host memory
  std::vector<std::vector<size_t>> units = {};  // at ZeRO stage 3: train::gathered_bytes() of each
};
// The types of a recipe's optimizer state.
train::OptimizerDtypes optimizer_types(const train::Recipe& recipe);

// The length of a run in steps. `sequences`: number of sequences in an epoch, for a length in epochs. `filled`: the
// fraction of sequence positions that hold tokens, for a length in tokens.
int64_t steps_of(const train::Recipe& recipe, int64_t sequences, double filled = 1);

// Placeholder statistics for unknown data: one epoch of one sequence, full of one document.
data::DatasetStatistics placeholder_statistics(int64_t sequence_length);

// Whether a rank can have this share of the model, as the recipe's determinism needs it. Errors: those of spec::check,
// spec::check_context_parallel and spec::check_sum_slices.
void check_share(const train::Recipe& recipe, const spec::ModelSpec& model, const train::ShardSpec& share);

// Resolves everything that is `auto` and checks that the settings are consistent. `longest_prompt`: tokens of the
// longest of eval.prompts; 0 without any. `available`: usable memory of `runtime`'s device; a run that needs more is
// sized with the smallest allowed micro-batch, and has `fits` false. `share`: what this rank stores. `recorded_micro`:
// batch.micro of the run that is continued, which `auto` then is, as far as it fits, with determinism: fast, where bits
// may depend on it. Errors: usage for a sequence longer than the model's context, for contradictory settings, and for
// more pipeline stages than blocks.
RunPlan size_run(const train::Recipe& recipe, const spec::ModelSpec& model, const data::DatasetStatistics& data,
                 int64_t longest_prompt, const WeightPlan& weights, size_t available, const runtime::Runtime& runtime,
                 const train::ShardSpec& share = {}, std::optional<int64_t> recorded_micro = {});

// The host memory for a copy of this rank's state, from which checkpoints are written while training goes on.
struct CheckpointCopy {
  size_t wanted = 0;
  size_t room = 0;
  bool fits() const { return wanted <= room; }
};
// `available`: as for size_run. `locals`: ranks on this machine, which share its memory.
CheckpointCopy checkpoint_copy(const RunPlan& plan, const Device& device, size_t available, int locals);
// ErrorKind::resource when a rank's host memory, of `room` bytes, cannot hold what the plan puts there.
void require_host_memory(const RunPlan& plan, size_t room);
void set_background_checkpoints(RunPlan& plan, bool background);
// Whether checkpoints are written before the run's end. The same on all ranks.
bool writes_checkpoints_between_steps(const train::Recipe& resolved);

// Changes the micro-batch to `micro` accumulation units and recomputes the memory of steps.
void set_micro_batch(RunPlan& plan, int64_t micro);

// size_run for a run that will be started. ErrorKind::resource when it does not fit, with the required memory by kind,
// and the available memory.
RunPlan plan_run(const train::Recipe& recipe, const spec::ModelSpec& model, const data::DatasetStatistics& data,
                 int64_t longest_prompt, const WeightPlan& weights, size_t available, const runtime::Runtime& runtime,
                 const train::ShardSpec& share = {}, std::optional<int64_t> recorded_micro = {});

}  // namespace ingot::runs
