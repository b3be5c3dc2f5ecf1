// Runs one micro-batch before training starts: a size that fits by the plan may not fit, as memory has other users.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "train/step.h"

namespace ingot::train {

struct ProbedStep {
  std::unique_ptr<Step> step;
  std::string shortage;  // what could not be allocated, if the micro-batch was reduced; else empty
};

// Makes a step of `settings` and runs a micro-batch of the first of `sequences` through forward and backward, without
// an update. If any rank runs out of memory, all ranks retry with a micro-batch of three quarters as many units, until
// it fits. Ranks call it together, with the same settings and the same number of sequences. The references outlive the
// step; samples[i] is the number of sequence i in the data set. Errors: resource, on all ranks, when a micro-batch of
// one unit does not fit.
ProbedStep probe_memory(Device& device, const ops::Registry& registry, ThreadPool& threads, const TrainedModel& model,
                        OptimizerState& optimizer_state, StepSettings settings, bool decoded,
                        std::span<const data::PackedSequence> sequences, std::span<const int64_t> samples,
                        const comm::Grid& grid = {});

}  // namespace ingot::train
