#include "runs/model.h"

#include "runs/folder.h"
#include "train/initialise.h"

namespace ingot::runs {

namespace {

checkpoint::LoadOptions load_options(const train::Recipe& r, runtime::Runtime& runtime, const train::ShardSpec& share) {
  return {.device = *runtime.device,
          .storage = weight_storage_of(r),
          .writable = !r.adapter,
          .pool = runtime.threads.get(),
          .shards = share.shards};
}

}  // namespace

WeightPlan plan_weights(const train::Recipe& r, runtime::Runtime& runtime, const checkpoint::ModelSource& source,
                        const spec::ModelSpec& model, const train::ShardSpec& share) {
  if (r.init == train::InitFrom::random) {
    return {train::weight_bytes(spec::held_parameters(model, share.shards), train::dtype_of(r.precision)), 0};
  }
  const checkpoint::WeightSizes sizes = checkpoint::weight_sizes(source, load_options(r, runtime, share));
  return {sizes.copied, sizes.mapped};
}

RunModel make_run_model(const RunPlan& plan, runtime::Runtime& runtime, const checkpoint::ModelSource& source,
                        const comm::Group& ranks) {
  const train::Recipe& r = plan.recipe;
  const train::ShardSpec& share = plan.share;
  Device& device = *runtime.device;
  const auto seed = static_cast<uint64_t>(r.seed);
  RunModel made;
  made.loaded = std::make_unique<checkpoint::LoadedModel>();
  checkpoint::LoadedModel& loaded = *made.loaded;
  if (r.init == train::InitFrom::random) {
    loaded.spec = plan.model;
    loaded.weights = train::random_weights(device, plan.model, plan.step.activation, seed,
                                           spec::held_parameters(plan.model, share.shards));
    made.base = "random";
  } else {
    loaded = checkpoint::load_model(source, load_options(r, runtime, share));
    made.base = weights_fingerprint(plan.model, share.shards, loaded.weights, device, ranks);
  }
  for (const spec::ModelShard& shard : share.shards)
    made.parts.push_back(models::make_model(plan.model, loaded.weights, device, shard));
  if (plan.lora) {
    made.optimizer_state = std::make_unique<train::OptimizerState>(device, plan.model, *plan.lora, plan.step.activation,
                                                                   plan.optimizer_types, seed, share);
  } else {
    made.optimizer_state = std::make_unique<train::OptimizerState>(device, plan.model, loaded.weights,
                                                                   plan.step.activation, plan.optimizer_types, share);
  }
  return made;
}

train::TrainedModel RunModel::trained() const {
  std::vector<models::Model*> models;
  for (const std::unique_ptr<models::Model>& part : parts) models.push_back(part.get());
  return {loaded->spec, std::move(models)};
}

void RunModel::begin(train::Step& step) {
  if (optimizer_state->adapter() != nullptr) {
    step.refresh_weights();
  } else {
    optimizer_state->init_masters(step.context());
  }
}

}  // namespace ingot::runs
