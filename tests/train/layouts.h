// Training steps of a small model in a layout of ranks, compared with those of one rank.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "models/testing/family_specs.h"
#include "spec/pipeline_schedule.h"
#include "tests/train/small_run.h"

namespace ingot::train {

constexpr int64_t sequences = 6;  // of a step

struct Layout {
  int tp, stages, dp, zero;
  spec::PipelineScheduleName schedule = spec::PipelineScheduleName::one_f_one_b;
  int chunks = 1;
  bool visible = true;
  spec::Recompute recompute = spec::Recompute::none;
  int cp = 1;
  bool sequence_parallel = false;
  int ep = 1;     // of the dp * cp ranks
  int shard = 0;  // SmallRun::Settings::shard
  int ranks() const { return tp * stages * dp * cp; }
};

SmallRun::Settings laid_out(SmallRun::Settings settings, const Layout& layout);

// Whole tensors, put together from the ranks' parts. What several ranks have must be equal.
class Gathered {
 public:
  void add(const TrainedParameter& t, const std::vector<float>& values);
  std::map<size_t, std::vector<float>> all;  // by TrainedParameter::number

 private:
  std::mutex mutex_;
};

struct Outcome {
  std::vector<double> losses, norms;
  double evaluated = 0;
  Gathered initial, weights;
};

// Step number `step` on this rank's share of the sequences.
StepResult run_step(SmallRun& run, int64_t step);

// Trains in the layout, with ranks as threads.
void train(Outcome& outcome, const SmallRun::Settings& settings, const Layout& layout, int64_t steps = 3);

// Expects the losses, gradient norms and weights of each layout to agree with those of one rank. Updates by SGD are
// proportional to the gradients: weights agree where gradients do. `rounding`: relative.
void compare(const SmallRun::Settings& settings, const std::vector<Layout>& tried, const std::string& name,
             double rounding);

// Expects each layout to have the bits of one rank, in `settings.slices`; one rank computes two micro-batches.
void compare_bits(SmallRun::Settings settings, const std::vector<Layout>& tried, const std::string& name,
                  int64_t steps = 2);

// The families of which two tensor-parallel ranks in each of two stages can have parts.
std::vector<models::FamilyCase> cut_families();

// The families whose sums can be taken in slices, and in how many of at most four.
std::vector<models::FamilyCase> sliced_families();
int max_slices(const spec::ModelSpec& spec);

// The rounding error of sums of this many terms propagates through all blocks, forward and backward, and over steps.
double rounding_of(const spec::ModelSpec& spec);

}  // namespace ingot::train
