#include "train/step_schedule.h"

#include <algorithm>

#include "spec/pipeline_timing.h"

namespace ingot::train {

int evaluated_at_once(int stages) { return stages == 1 ? 1 : 4 * stages; }

int micro_batches_of(int64_t sequences, const StepSettings& settings, const ShardSpec& share) {
  const int64_t each = settings.micro * settings.accumulation_unit;
  const int64_t needed = std::max<int64_t>(1, (sequences + each - 1) / each);
  const bool whole_groups = settings.schedule == spec::PipelineScheduleName::interleaved;
  const int64_t group = whole_groups ? share.stages() : 1;
  return static_cast<int>((needed + group - 1) / group * group);
}

int64_t gradient_unit(int64_t sequences, const StepSettings& settings, const ShardSpec& share, bool host_visible) {
  const bool by_unit = host_visible || settings.accumulation_units > 0 || share.sum_slices > 1;
  return by_unit ? settings.accumulation_unit : std::max(sequences, settings.accumulation_unit);
}

bool has_equal_micro_batches(const ShardSpec& share) { return share.zero_stage() >= 2 || share.stages() > 1; }

spec::PipelineSchedule step_schedule(const spec::ModelSpec& model, spec::PipelineScheduleName name,
                                     const ShardSpec& share, int64_t lowest_trainable_layer, int micro_batches,
                                     bool trains) {
  if (share.stages() == 1) name = spec::PipelineScheduleName::one_f_one_b;
  spec::PipelineShape shape{
      .ranks = share.stages(), .chunks = static_cast<int>(share.shards.size()), .micro_batches = micro_batches};
  const int stages = shape.virtual_stages();
  shape.first_trainable =
      trains ? static_cast<int>(spec::first_trainable_stage(model, stages, lowest_trainable_layer)) : stages;
  return spec::make_pipeline_schedule(name, shape);
}

AtOnce at_once(const spec::ModelSpec& model, const StepSettings& settings, const ShardSpec& share,
               int64_t lowest_trainable_layer) {
  AtOnce most;
  if (share.stages() == 1) return most;
  const auto schedule = [&](int micro_batches, bool trains) {
    return step_schedule(model, settings.schedule, share, lowest_trainable_layer, micro_batches, trains);
  };
  for (const spec::PipelineSchedule& each : {schedule(micro_batches_of(settings.sequences, settings, share), true),
                                             schedule(evaluated_at_once(share.stages()), false)}) {
    most.saved = std::max(most.saved, spec::activation_slots(each, share.stage()));
    most.messages = std::max(most.messages, spec::message_buffers(each, share.stage()));
    most.micro_batches = std::max(most.micro_batches, spec::micro_batches_at_once(each, share.stage()));
  }
  return most;
}

}  // namespace ingot::train
