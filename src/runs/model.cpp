#include "runs/model.h"

#include "base/error.h"
#include "comm/host_communicator.h"
#include "runs/folder.h"
#include "train/initialise.h"

namespace ingot::runs {

namespace {

// `device`: where the weights are stored.
checkpoint::LoadOptions load_options(const train::Recipe& r, Device& device, runtime::Runtime& runtime,
                                     const train::ShardSpec& share) {
  return {.device = device,
          .storage = weight_storage_of(r),
          .writable = !r.adapter,
          .pool = runtime.threads.get(),
          .shards = share.shards};
}

// Where a device has weights only while they are used (ShardSpec::gathers_weights).
std::vector<train::WeightUnit> weight_units(const train::Recipe& r, const spec::ModelSpec& model,
                                            const std::vector<ParameterForm>& forms, const train::ShardSpec& share) {
  std::vector<train::DividedBucket> trained;
  if (!r.adapter) trained = train::divide_parameters(model, train::dtype_of(r.precision), optimizer_types(r), share);
  return train::weight_units(model, forms, trained, share);
}

std::vector<ParameterForm> forms_of(const train::Recipe& r, const checkpoint::ModelSource& source,
                                    const checkpoint::LoadOptions& options, const spec::ModelSpec& model,
                                    bool may_lack_files = false) {
  if (r.init == train::InitFrom::random)
    return train::random_forms(spec::held_parameters(model, options.shards), train::dtype_of(r.precision));
  if (may_lack_files && !checkpoint::has_weights(source)) return checkpoint::parameter_forms(model, options);
  return checkpoint::parameter_forms(source, options);
}

WeightPlan bytes_of_weights(const train::Recipe& r, runtime::Runtime& runtime, const checkpoint::ModelSource& source,
                            const spec::ModelSpec& model, const train::ShardSpec& share,
                            const WeightPlanOptions& planned) {
  const checkpoint::LoadOptions options = load_options(r, *runtime.device, runtime, share);
  if (r.parallel.offload != train::Offload::none && runtime.device->host_visible()) {
    const char* what = share.offload_weights ? "weights" : "optimizer";
    throw_hint(ErrorKind::usage, "remove parallel.offload, or give another device",
               "parallel.offload: {} with device {}: {} in host memory already", what, runtime.device->name(),
               share.offload_weights ? "weights are" : "its state is");
  }
  if (share.gathers_weights()) {
    const std::vector<train::WeightUnit> units =
        weight_units(r, model, forms_of(r, source, options, model, planned.may_lack_files), share);
    const auto [own, offloaded, gathered, staging] = train::sharded_weight_bytes(model, units, share, planned.staged);
    WeightPlan plan{.copied = own, .gathered = gathered, .staging = staging, .offloaded = offloaded};
    for (const train::WeightUnit& unit : units) plan.units.push_back(train::gathered_bytes(unit));
    return plan;
  }
  if (r.init == train::InitFrom::random) {
    return {train::weight_bytes(spec::held_parameters(model, share.shards), train::dtype_of(r.precision))};
  }
  if (planned.may_lack_files && !checkpoint::has_weights(source)) {
    WeightPlan plan;
    for (const ParameterForm& form : checkpoint::parameter_forms(model, options))
      plan.copied += Arena::footprint(form.bytes());
    return plan;
  }
  const checkpoint::WeightSizes sizes = checkpoint::weight_sizes(source, options);
  return {.copied = sizes.copied, .mapped = sizes.mapped};
}

}  // namespace

WeightPlan plan_weights(const train::Recipe& r, runtime::Runtime& runtime, const checkpoint::ModelSource& source,
                        const spec::ModelSpec& model, const train::ShardSpec& share, const WeightPlanOptions& planned) {
  WeightPlan plan = bytes_of_weights(r, runtime, source, model, share, planned);
  plan.staged = planned.staged;
  return plan;
}

RunModel make_run_model(const RunPlan& plan, runtime::Runtime& runtime, const checkpoint::ModelSource& source,
                        const comm::Grid& grid) {
  const train::Recipe& r = plan.recipe;
  const train::ShardSpec& share = plan.share;
  Device& device = *runtime.device;
  const auto seed = static_cast<uint64_t>(r.seed);
  RunModel made;
  made.loaded = std::make_unique<checkpoint::LoadedModel>();
  checkpoint::LoadedModel& loaded = *made.loaded;
  const std::vector<spec::HeldParameter> held = spec::held_parameters(plan.model, share.shards);
  const DType type = plan.step.activation;
  const std::unique_ptr<Device> host = share.offload_weights ? runtime::host_memory() : nullptr;
  Device& stored_on = host ? *host : device;
  checkpoint::LoadOptions options = load_options(r, stored_on, runtime, share);
  if (share.gathers_weights()) {
    const auto communicator = [&](const std::shared_ptr<comm::DeviceCommunicator>& library, const comm::Group& ranks) {
      return library ? library : comm::through_host(device, ranks);
    };
    made.sharded = std::make_unique<train::ShardedWeights>(
        device, plan.model, weight_units(r, plan.model, forms_of(r, source, options, plan.model), share), share,
        communicator(grid.on_device.weights, grid.weights),
        communicator(grid.on_device.expert_weights, grid.expert_weights));
    options.kept = made.sharded->own();
  }
  if (r.init == train::InitFrom::random) {
    loaded.spec = plan.model;
    if (made.sharded) {
      train::write_random_weights(stored_on, plan.model, type, seed, held, options.kept);
    } else {
      loaded.weights = train::random_weights(device, plan.model, type, seed, held);
    }
    made.base = "random";
  } else {
    loaded = checkpoint::load_model(source, options);
    made.base = weights_fingerprint(plan.model, share.shards, made.weights(), stored_on,
                                    made.sharded ? grid.world : grid.model, options.kept);
  }
  for (const spec::ModelShard& shard : share.shards)
    made.parts.push_back(models::make_model(plan.model, made.weights(), device, shard));
  if (plan.lora) {
    made.optimizer_state = std::make_unique<train::OptimizerState>(device, plan.model, *plan.lora, type,
                                                                   plan.optimizer_types, seed, share);
  } else {
    if (plan.optimizer_types.offload) made.host = runtime::host_memory();
    made.optimizer_state = std::make_unique<train::OptimizerState>(
        device, plan.model, made.weights(), type, plan.optimizer_types, share, made.sharded.get(), made.host.get());
  }
  return made;
}

train::TrainedModel RunModel::trained() const {
  std::vector<models::Model*> models;
  for (const std::unique_ptr<models::Model>& part : parts) models.push_back(part.get());
  train::TrainedModel model(loaded->spec, std::move(models));
  model.sharded = sharded.get();
  return model;
}

void RunModel::begin(train::Step& step) {
  if (optimizer_state->adapter() != nullptr) {
    step.refresh_weights();
  } else {
    optimizer_state->init_masters(step.context());
  }
}

}  // namespace ingot::runs
