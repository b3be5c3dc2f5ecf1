// The micro-batches of a step, the pipeline schedules that order them, and how many of them a rank has at once: what
// the step executes and what its memory is sized by.
#pragma once

#include "spec/pipeline_schedule.h"
#include "train/sharding.h"
#include "train/step.h"

namespace ingot::train {

// Sequences that are evaluated at a time: in a pipeline enough to keep all stages busy most of the time.
int evaluated_at_once(int stages);

// Micro-batches of `sequences`, of which the last may be smaller. Interleaved schedules need a multiple of the stages,
// so some at the end may be empty.
int micro_batches_of(int64_t sequences, const StepSettings& settings, const ShardSpec& share);

// Consecutive sequences of a micro-batch of `sequences` whose gradient is one contribution to the accumulator: those of
// an accumulation unit. On GPUs, where sums are in fp32, all of them: their sum is taken inside the gemms, and each
// gradient is read and written once per micro-batch. `host_visible`: Device::host_visible(), false for GPUs.
int64_t gradient_unit(int64_t sequences, const StepSettings& settings, const ShardSpec& share, bool host_visible);

// Whether all data-parallel ranks compute as many micro-batches, some of which may be empty: in a pipeline and from
// ZeRO stage 2 on each micro-batch, or the end of a schedule, has collective operations.
bool has_equal_micro_batches(const ShardSpec& share);

// `trains`: else forwards alone, as for an evaluation. Without a pipeline the name does not matter.
spec::PipelineSchedule step_schedule(const spec::ModelSpec& model, spec::PipelineScheduleName name,
                                     const ShardSpec& share, int64_t lowest_trainable_layer, int micro_batches,
                                     bool trains);

// What a pipeline's rank has at once, in steps and in evaluations.
struct AtOnce {
  int saved = 1;  // micro-batches with saved activations
  int messages = 0;
  int micro_batches = 1;  // with their ids, targets and so on
};

AtOnce at_once(const spec::ModelSpec& model, const StepSettings& settings, const ShardSpec& share,
               int64_t lowest_trainable_layer);

}  // namespace ingot::train
