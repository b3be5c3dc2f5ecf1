// The communication of a rank in a step of training, from sizes alone: what `--dry-run` shows. Step::traffic() counts
// it.
#pragma once

#include <optional>
#include <span>

#include "spec/lora.h"
#include "spec/traffic.h"
#include "train/optimizer_state.h"
#include "train/step.h"

namespace ingot::train {

// Of activations, gradients and weights. Not of numbers that ranks agree by (losses, norms, counts of tokens), which
// are a few KiB a step. In a step after the first, without evaluation before it. `units`: at ZeRO stage 3
// gathered_bytes() of each unit of weights; else not used. `sequences`: of a step, over all ranks.
// `host_visible`: of the device.
//
// A mixture whose sums are taken in slices (ShardSpec::sum_slices) sends for every expert that has tokens: all of them
// are counted, each with an equal share of the tokens.
spec::Traffic step_traffic(const spec::ModelSpec& model, const std::optional<spec::LoraSpec>& lora,
                           const OptimizerDtypes& types, const StepSettings& settings, const ShardSpec& share,
                           std::span<const std::vector<size_t>> units, int64_t sequences, bool host_visible);

}  // namespace ingot::train
