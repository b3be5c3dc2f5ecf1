#include "tests/train/small_run.h"

#include <algorithm>
#include <numeric>

#include "base/half.h"
#include "base/philox.h"
#include "comm/host_communicator.h"
#include "train/initialise.h"

namespace ingot::train {

spec::ModelSpec small_spec(bool tied) {
  spec::ModelSpec spec;
  spec.family = "llama";
  spec.vocab = 40;
  spec.hidden = 16;
  spec.context = 64;
  spec.tied_head = tied;
  spec.initializer_range = 0.2;
  spec::LayerSpec layer;
  layer.attention.heads = 4;
  layer.attention.kv_heads = 2;
  layer.attention.head_dim = 8;
  layer.mlp = spec::Dense{.features = 24};
  spec.layers = spec::repeated(3, layer);
  return spec;
}

spec::LoraSpec small_lora(std::vector<std::string> targets) {
  return {.rank = 4, .alpha = 8, .targets = std::move(targets)};
}

SmallRun::SmallRun(const Settings& settings)
    : device(settings.visible), threads(settings.threads), spec(settings.spec) {
  cpu::register_ops(registry);
  const int dp = settings.ranks.size() / settings.stages / settings.tp / settings.cp;
  const comm::Grid grid = comm::make_grid(settings.ranks, {.dp = dp,
                                                           .cp = settings.cp,
                                                           .pp = settings.stages,
                                                           .tp = settings.tp,
                                                           .shard = settings.shard,
                                                           .ep = settings.ep});
  ShardSpec share{grid.shard.rank(), grid.shard.size(), settings.zero};
  share.replica = grid.replicas.rank();
  share.replicas = grid.replicas.size();
  share.cp = settings.cp;
  share.cp_comm_type = settings.cp_comm_type;
  share.offload_weights = settings.offload;
  share.sum_slices = settings.slices;
  share.bucket_bytes = settings.bucket_bytes;
  if (settings.stages > 1)
    share.shards = spec::pipeline_shards(settings.step.schedule, settings.stages, settings.chunks, grid.pp.rank());
  for (spec::ModelShard& shard : share.shards) {
    shard.tp = grid.tp.size();
    shard.tp_rank = grid.tp.rank();
    shard.ep = grid.ep.size();
    shard.ep_rank = grid.ep.rank();
    shard.sequence_parallel = settings.sequence_parallel && settings.tp > 1;
  }
  const std::vector<spec::HeldParameter> held = spec::held_parameters(spec, share.shards);
  if (share.gathers_weights()) {
    std::vector<DividedBucket> trained;
    if (!settings.lora) trained = divide_parameters(spec, settings.step.activation, settings.types, share);
    sharded.emplace(device, spec, weight_units(spec, random_forms(held, settings.weights), trained, share), share,
                    comm::through_host(device, grid.weights), comm::through_host(device, grid.expert_weights));
    write_random_weights(settings.offload ? host : device, spec, settings.weights, 11, held, sharded->own());
  } else {
    weights = random_weights(device, spec, settings.weights, 11, held);
  }
  const WeightSet& computed = sharded ? sharded->weights() : weights;
  for (const spec::ModelShard& shard : share.shards) parts.push_back(models::make_model(spec, computed, device, shard));
  if (settings.lora) {
    optimizer_state.emplace(device, spec, *settings.lora, settings.step.activation, settings.types, 5, share);
  } else {
    optimizer_state.emplace(device, spec, computed, settings.step.activation, settings.types, share,
                            sharded ? &*sharded : nullptr, settings.types.offload ? &host : nullptr);
  }
  const size_t before = device.allocated();
  step.emplace(device, registry, threads, model(), *optimizer_state, settings.step,
               settings.weights != settings.step.activation, grid);
  step_bytes = device.allocated() - before;
  if (settings.lora) {
    step->refresh_weights();
  } else {
    optimizer_state->init_masters(step->context());
  }
}

TrainedModel SmallRun::model() {
  std::vector<models::Model*> models;
  for (const std::unique_ptr<models::Model>& part : parts) models.push_back(part.get());
  TrainedModel model(spec, std::move(models));
  if (sharded) model.sharded = &*sharded;
  return model;
}

std::vector<float> SmallRun::weight(const TrainedParameter& t) const {
  if (optimizer_state->has_whole_weights()) return floats(t.weight);
  std::vector<float> whole(static_cast<size_t>(t.shape.elements()));
  const std::vector<float> own = floats(t.own_weight);
  const comm::Group& ranks = t.divided ? step->grid().expert_shard : step->grid().shard;
  const std::vector<std::vector<float>> all = ranks.gather(std::span<const float>(own));
  for (size_t rank = 0; rank < all.size(); ++rank) std::ranges::copy(all[rank], whole.begin() + t.parts[rank].begin);
  return whole;
}

void SmallRun::randomise_b(uint64_t seed) {
  for (const TrainedParameter& t : optimizer_state->tensors()) {
    if (t.name.find("lora_B") == std::string::npos) continue;
    RandomStream random(seed, std::hash<std::string>()(t.name));
    std::vector<float> values(static_cast<size_t>(t.whole.elements()));
    for (float& value : values) value = static_cast<float>(random.normal()) * 0.1F;
    spec::for_runs(t.slice, t.whole[1], [&](int64_t first, int64_t count, int64_t at) {
      for (int64_t i = std::max(at, t.shard.begin); i < std::min(at + count, t.shard.end); ++i) {
        const float value = values[static_cast<size_t>(first + i - at)];
        if (t.master.dtype == DType::f32) {
          t.master.as<float>()[i - t.shard.begin] = value;
        } else {
          t.master.as<uint16_t>()[i - t.shard.begin] = float_to_bf16(value);
        }
      }
    });
  }
  step->refresh_weights();
}

std::vector<data::PackedSequence> SmallRun::sequences(int64_t count) const {
  std::vector<data::PackedSequence> all;
  const int64_t length = step->settings().sequence_length;
  for (int64_t s = 0; s < count; ++s) {
    RandomStream random(3, s);
    data::PackedSequence sequence;
    for (int64_t t = 0; t < length; ++t) {
      sequence.ids.push_back(static_cast<int32_t>(random.below(static_cast<uint64_t>(spec.vocab))));
    }
    const int32_t cut = static_cast<int32_t>(5 + s % 3);
    sequence.offsets = {0, cut, static_cast<int32_t>(length)};
    for (int32_t t = 0; t < length; ++t) {
      const bool counts = t + 1 != cut && t + 1 != length && t % 5 != 3;
      sequence.targets.push_back(counts ? sequence.ids[static_cast<size_t>(t) + 1] : -1);
      sequence.loss_tokens += counts;
    }
    all.push_back(std::move(sequence));
  }
  return all;
}

std::vector<int64_t> SmallRun::samples(int64_t count) {
  std::vector<int64_t> names(static_cast<size_t>(count));
  std::iota(names.begin(), names.end(), 0);
  return names;
}

ProbedStep SmallRun::probe(int64_t micro, bool lacks, const std::vector<data::PackedSequence>& batch) {
  const comm::Grid grid = step->grid();
  StepSettings asked = step->settings();
  step.reset();
  const StepBytes one =
      Step::bytes(spec, asked, 0, 0, false, 1, optimizer_state->update_bytes(), true, optimizer_state->share());
  if (lacks) device.limit(std::max({one.saved, one.scratch, one.batch}));
  asked.micro = micro;
  return probe_memory(device, registry, threads, model(), *optimizer_state, asked, false, batch,
                      samples(std::ssize(batch)), grid);
}

StepResult SmallRun::run(int64_t at, double lr, const std::vector<data::PackedSequence>& batch) {
  return step->run(at, lr, batch, samples(static_cast<int64_t>(batch.size())));
}

double SmallRun::evaluate(const std::vector<data::PackedSequence>& batch) {
  const std::vector<double> losses = step->evaluate(batch);
  return std::accumulate(losses.begin(), losses.end(), 0.0);
}

std::vector<float> floats(const Tensor& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.elements()));
  for (size_t i = 0; i < values.size(); ++i) {
    switch (tensor.dtype) {
      case DType::f32: values[i] = tensor.as<float>()[i]; break;
      case DType::u8: values[i] = tensor.as<uint8_t>()[i]; break;
      default: values[i] = bf16_to_float(tensor.as<uint16_t>()[i]);
    }
  }
  return values;
}

std::vector<std::vector<float>> state_of(const OptimizerState& optimizer_state) {
  std::vector<std::vector<float>> state;
  for (const TrainedParameter& t : optimizer_state.tensors()) {
    state.push_back(floats(t.master));
    for (const StateTensor& each : t.state) state.push_back(floats(each.tensor));
    state.push_back(floats(t.weight));
  }
  return state;
}

std::vector<std::vector<float>> gradients_of(const OptimizerState& optimizer_state) {
  std::vector<std::vector<float>> gradients;
  for (const TrainedParameter& t : optimizer_state.tensors()) gradients.push_back(floats(t.gradient));
  return gradients;
}

}  // namespace ingot::train
