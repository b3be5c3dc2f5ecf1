// A step's micro-batch is tried before the run begins: what a plan says fits may not, for memory has other users.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "train/step.h"

namespace ingot::train {

struct Rehearsed {
  std::unique_ptr<Step> step;
  std::string shortage;  // what there was no memory for, when the micro-batch is less than was asked for; else empty
};

// A step of `settings`, tried on the first of `sequences`: a micro-batch forward and backward, nothing updated. Where
// memory is short on any rank all try micro-batches of three quarters the units, and so on. Ranks call it together,
// with the same settings and as many sequences. The references outlive the step; samples[i] names sequence i. Errors:
// resource, on all ranks, when one unit is too much.
Rehearsed rehearse(Device& device, const ops::Registry& registry, ThreadPool& threads, models::Model& model,
                   Trained& trained, StepSettings settings, bool decoded,
                   std::span<const data::PackedSequence> sequences, std::span<const int64_t> samples,
                   const comm::Group& ranks = {});

}  // namespace ingot::train
