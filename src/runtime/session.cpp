#include "runtime/session.h"

#include <algorithm>

#include "base/error.h"
#include "checkpoint/adapter.h"
#include "checkpoint/row_codec.h"
#include "nn/adapter_part.h"
#include "ops/linear_int8.h"

namespace ingot::runtime {

namespace {

checkpoint::LoadOptions load_options(const std::string& weights, DType activation, Runtime& runtime,
                                     const spec::ModelShard& shard) {
  const std::optional<checkpoint::WeightStorage> storage = checkpoint::weight_storage(weights, activation);
  if (!storage) {
    throw_hint(ErrorKind::usage, "use auto, stored, bf16, fp16, fp32, int8, int4 or fp8", "--weights '{}' is not known",
               weights);
  }
  return {.device = *runtime.device, .storage = *storage, .pool = runtime.threads.get(), .shards = {shard}};
}

// Loads the model. An adapter with more than low-rank terms (DoRA, modules_to_save, biases) is merged into its weights.
checkpoint::LoadedModel load(const ModelOptions& options, const checkpoint::ModelSource& source, DType activation,
                             Runtime& runtime, const spec::ModelShard& shard) {
  checkpoint::LoadOptions how = load_options(options.weights, activation, runtime, shard);
  if (!options.adapter) return checkpoint::load_model(source, how);
  const checkpoint::AdapterFile adapter =
      checkpoint::read_adapter(*options.adapter, checkpoint::read_model_spec(source));
  how.writable = adapter.replaces_weights();
  if (how.writable && shard.tp * shard.pp > 1) {
    throw_hint(ErrorKind::unsupported, "merge it into the model first: ingot model merge",
               "the adapter {} replaces weights (DoRA, modules_to_save or biases), which --tp and --pp do not support",
               *options.adapter);
  }
  checkpoint::LoadedModel loaded = checkpoint::load_model(source, how);
  if (how.writable) checkpoint::merge_adapter(loaded.weights, *runtime.device, adapter, 1, runtime.threads.get());
  return loaded;
}

// A copy of a host tensor in the arena, times `factor`, converted to `dtype`.
Tensor converted(Arena& arena, Device& device, const Tensor& host, DType dtype, float factor = 1) {
  const Tensor out = arena.allocate(dtype, host.shape);
  const StorageType from = checkpoint::storage_of(host.dtype);
  const StorageType to = checkpoint::storage_of(dtype);
  std::vector<float> values(static_cast<size_t>(host.elements()));
  std::vector<std::byte> bytes(out.bytes());
  checkpoint::decode_row(from, host.data, host.elements(), values.data());
  for (float& value : values) value *= factor;
  checkpoint::encode_row(to, values.data(), host.elements(), bytes.data());
  if (checkpoint::find_non_finite(to, bytes.data(), host.elements()) >= 0) {
    throw_hint(ErrorKind::corrupt, "try --dtype bf16 or fp32", "an adapter's weights times its scale of {} overflow {}",
               factor, name(dtype));
  }
  device.copy_from_host(out.data, bytes.data(), bytes.size());
  return out;
}

// The adapter of a file in `dtype`, in an arena.
nn::Adapter read_layers(const checkpoint::AdapterFile& file, size_t parameters, Arena& arena, Device& device,
                        DType dtype) {
  size_t bytes = 0;
  for (const checkpoint::AdapterModule& module : file.modules)
    bytes += Arena::footprint(dtype, module.a.shape) + Arena::footprint(dtype, module.b.shape);
  arena = Arena(device, bytes, "adapter");
  nn::Adapter adapter;
  const auto factor = static_cast<float>(file.lora.factor());
  // If rank or alpha patterns make the layers' factors differ, each factor is folded into its layer's B.
  const bool same = std::all_of(file.modules.begin(), file.modules.end(),
                                [&](const checkpoint::AdapterModule& module) { return module.factor == factor; });
  adapter.factor = same ? factor : 1;
  adapter.layers.resize(parameters);
  for (const checkpoint::AdapterModule& module : file.modules) {
    nn::LoraWeights& layer = adapter.layers[module.param.base];
    layer.a = converted(arena, device, module.a, dtype);
    layer.b = converted(arena, device, module.b, dtype, same ? 1 : module.factor);
  }
  return adapter;
}

spec::ModelShard shard_of(const models::ModelRanks& ranks) {
  const comm::Group &tp = ranks.tp.group, &stages = ranks.stages;
  return {.tp = tp.size(), .tp_rank = tp.rank(), .pp = stages.size(), .stage = stages.rank()};
}

std::unique_ptr<models::InferenceModel> make_model(const checkpoint::LoadedModel& loaded, Device& device,
                                                   const models::ModelRanks& ranks) {
  std::unique_ptr<models::InferenceModel> part =
      models::make_model(loaded.spec, loaded.weights, device, shard_of(ranks));
  if (ranks.all.size() == 1) return part;
  return std::make_unique<models::DividedModel>(std::move(part), ranks);
}

}  // namespace

bool asks_for_int8(const std::string& compute, const Device& device) {
  if (compute == "auto") return false;
  if (compute != "int8") throw_hint(ErrorKind::usage, "use auto or int8", "--compute '{}' is not known", compute);
  if (device.kind() != DeviceKind::cpu) {
    throw_hint(ErrorKind::usage, "leave --compute out, or use --device cpu", "--compute int8 is for CPUs, not {}",
               device.name());
  }
  return true;
}

void require_int8_weights(const WeightSet& weights, const comm::Group& ranks) {
  const bool any = std::any_of(weights.parameters.begin(), weights.parameters.end(), [](const Parameter& parameter) {
    return parameter.matrix && ops::has_linear_int8(parameter.matrix.storage);
  });
  if (ranks.all_max(static_cast<int32_t>(any)) != 0) return;
  throw_hint(ErrorKind::usage, "use --weights int8 or int4",
             "--compute int8 multiplies weights in q8_0 or q4_0, and this model has none in memory");
}

DType activation_of(const std::string& dtype) {
  if (dtype == "bf16") return DType::bf16;
  if (dtype == "fp16") return DType::f16;
  if (dtype == "fp32") return DType::f32;
  throw_hint(ErrorKind::usage, "use bf16, fp16 or fp32", "--dtype '{}' is not known", dtype);
}

Session::Session(const ModelOptions& options, const ModelRank& rank)
    : runtime(rank.runtime),
      ranks(rank.ranks.all),
      source(checkpoint::open_model(options.model)),
      activation(activation_of(options.dtype)),
      int8_activations(asks_for_int8(options.compute, *runtime.device)),
      loaded(load(options, source, activation, runtime, shard_of(rank.ranks))),
      model(make_model(loaded, *runtime.device, rank.ranks)) {
  const std::vector<Parameter>& parameters = loaded.weights.parameters;
  const bool decodes = std::ranges::any_of(parameters, [&](const Parameter& parameter) {
    return parameter.matrix && parameter.matrix.storage != checkpoint::storage_of(activation);
  });
  decoded = ranks.all_max(static_cast<int32_t>(decodes)) != 0;  // the same memory on all ranks
  if (int8_activations) require_int8_weights(loaded.weights, ranks);
  if (options.adapter) open_adapter(*options.adapter);
}

void Session::open_adapter(const std::string& path) {
  const checkpoint::AdapterFile file = checkpoint::read_adapter(path, loaded.spec);
  adapter_merged = file.replaces_weights();
  if (adapter_merged) return;
  for (const checkpoint::AdapterModule& module : file.modules) adapter_rank = std::max(adapter_rank, module.param.rank);
  const size_t parameters = loaded.weights.parameters.size();
  if (ranks.size() == 1) {
    adapter = read_layers(file, parameters, adapter_arena_, *runtime.device, activation);
    return;
  }
  host_ = host_memory();
  whole_adapter_ = read_layers(file, parameters, whole_arena_, *host_, activation);
  const std::vector<spec::HeldParameter>& held = model->held_parameters();
  const size_t bytes = nn::adapter_part_bytes(*whole_adapter_, held);
  Arena part_arena(*host_, bytes, "adapter");
  adapter_arena_ = Arena(*runtime.device, bytes, "adapter");
  adapter = nn::adapter_part(*whole_adapter_, held,
                             [&](DType type, const Shape& shape) { return part_arena.allocate(type, shape); });
  for (nn::LoraWeights& layer : adapter->layers) {
    for (Tensor* matrix : {&layer.a, &layer.b}) {
      if (!*matrix) continue;
      const Tensor on_device = adapter_arena_.allocate(matrix->dtype, matrix->shape);
      runtime.device->copy_from_host(on_device.data, matrix->data, matrix->bytes());
      *matrix = on_device;
    }
  }
}

const nn::Adapter* Session::whole_adapter() const {
  if (whole_adapter_) return &*whole_adapter_;
  return adapter ? &*adapter : nullptr;
}

const checkpoint::TextAssets& Session::text() {
  if (!text_) text_ = checkpoint::load_text(source);
  return *text_;
}

const text::Tokenizer& Session::tokenizer() {
  if (!text().tokenizer) {
    throw_hint(ErrorKind::not_found, "put tokenizer.json beside config.json, or give --ids",
               "the model {} has no tokenizer", source.path.string());
  }
  return *text().tokenizer;
}

models::PassShape Session::shape(int64_t tokens, int64_t logit_rows) const {
  models::PassShape shape;
  shape.tokens = tokens;
  shape.longest = tokens;
  shape.logit_rows = logit_rows;
  shape.adapter_rank = adapter_rank;
  shape.activation = activation;
  shape.decoded = decoded;
  shape.int8_activations = int8_activations;
  shape.threads = runtime.threads->threads();
  shape.tp = model->shard().tp;
  shape.pp = model->shard().pp;
  shape.host_visible = runtime.device->host_visible();
  return shape;
}

std::vector<nn::AdapterSegment> Session::segments(int64_t tokens) const {
  if (!adapter) return {};
  return {{0, tokens, &*adapter}};
}

nn::Pass Session::pass(ops::Context& context, const nn::TokenBatch& batch,
                       std::vector<nn::AdapterSegment> adapters) const {
  nn::Pass pass{context, batch, activation, std::move(adapters)};
  pass.int8_activations = int8_activations;
  return pass;
}

void check_ids(const std::vector<int32_t>& ids, int64_t vocab) {
  for (int32_t id : ids) {
    if (id < 0 || id >= vocab) {
      throw_error(ErrorKind::usage, "token id {} is outside the vocabulary of {}", id, vocab);
    }
  }
}

}  // namespace ingot::runtime
