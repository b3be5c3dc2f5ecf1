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
  spec::CpCommType cp_comm_type = spec::CpCommType::a2a;
  int ep = 1;     // of the dp * cp ranks
  int shard = 0;  // SmallRun::Settings::shard
  int ranks() const { return tp * stages * dp * cp; }
};

SmallRun::Settings laid_out(SmallRun::Settings settings, const Layout& layout);

// Whole tensors, put together from the ranks' parts. What several ranks have must be equal.
class Gathered {
 public:
  void add(const TrainedParameter& t, const std::vector<float>& values);
  // `values` of the elements `own` of what the rank has of the tensor, flattened.
  void add(const TrainedParameter& t, const std::vector<float>& values, const Range& own);
  std::map<size_t, std::vector<float>> all;  // by TrainedParameter::number

 private:
  std::mutex mutex_;
};

struct Outcome {
  std::vector<double> losses, norms;
  double evaluated = 0;
  // `gradients`: the first step's, clipped, times a number that depends on the optimizer: its first state is then that.
  Gathered initial, gradients, weights;
};

// Step number `step` on this rank's share of the sequences.
StepResult run_step(SmallRun& run, int64_t step);

// Trains in the layout, with ranks as threads.
void train(Outcome& outcome, const SmallRun::Settings& settings, const Layout& layout, int64_t steps = 3);

// How far a run is from that of one rank.
struct Difference {
  bool bits = true;     // all values are equal
  double loss = 0;      // largest of a step or of the evaluation, relative
  double gradient = 0;  // largest of an element, relative to the largest element of all gradients
  double weight = 0;    // likewise of the weights after the last step
  // The largest of all, relative to what rounding allows, and where it is. Infinite where there is nothing to compare.
  double of_allowed = 0;
  std::string where;
};
// `type`: of the weights. `rounding`: relative. With SGD, whose updates are proportional to gradients, weights agree
// where gradients do.
Difference difference(const Outcome& one, const Outcome& found, DType type, double rounding);

// Expects the losses, gradient norms, gradients and weights of each layout to agree with those of one rank.
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
double rounding_of(const spec::ModelSpec& spec, int64_t steps = 3);

// The model with its blocks repeated, in order, until there are at least `count`.
spec::ModelSpec with_blocks(spec::ModelSpec spec, int64_t count);

}  // namespace ingot::train
