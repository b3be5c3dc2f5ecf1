#include "bench/random_model.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/philox.h"
#include "checkpoint/load.h"
#include "checkpoint/model_source.h"
#include "checkpoint/row_codec.h"
#include "runtime/random_pool.h"
#include "tensor/tolerance.h"

namespace ingot::bench {

namespace {

constexpr int64_t check_steps = 3;
constexpr int64_t check_tokens = 32;

// Matrices as rows of their storage type, vectors as one row of f32.
struct Rows {
  StorageType storage;
  int64_t rows, in;

  size_t bytes() const { return static_cast<size_t>(rows) * row_bytes(storage, in); }
};

Rows rows_of(const spec::ParamSpec& p, const checkpoint::WeightStorage& storage) {
  if (p.shape.size() == 2) return {storage.of(p), p.shape[0], p.shape[1]};
  return {StorageType::f32, 1, p.elements()};
}

}  // namespace

size_t random_model_bytes(const spec::ModelSpec& model, const checkpoint::WeightStorage& storage) {
  size_t bytes = 0;
  for (const spec::ParamSpec& p : spec::parameters(model)) bytes += Arena::footprint(rows_of(p, storage).bytes());
  return bytes;
}

WeightSet random_model(Device& device, const spec::ModelSpec& model, const checkpoint::WeightStorage& storage,
                       uint64_t seed, double scale) {
  const std::vector<spec::ParamSpec> table = spec::parameters(model);
  const auto arena = std::make_shared<Arena>(device, random_model_bytes(model, storage), "weights");
  int64_t most = 1;
  for (const spec::ParamSpec& p : table) most = std::max(most, p.elements());
  std::optional<runtime::RandomPool> random;
  if (scale != 0) random.emplace(seed, most);
  std::vector<void*> memory(table.size());
  for (const bool matrices : {true, false}) {  // matrices first, as load_model does for serving
    for (size_t i = 0; i < table.size(); ++i) {
      if ((table[i].shape.size() == 2) == matrices)
        memory[i] = arena->allocate_bytes(rows_of(table[i], storage).bytes());
    }
  }
  WeightSet weights;
  for (size_t i = 0; i < table.size(); ++i) {
    const spec::ParamSpec& p = table[i];
    const Rows rows = rows_of(p, storage);
    void* data = memory[i];
    Parameter parameter;
    if (p.shape.size() == 2) {
      parameter.matrix = Weight{rows.storage, data, rows.rows, rows.in, &device};
    } else {
      parameter.vector = Tensor{data, DType::f32, Shape{rows.in}, &device};
    }
    if (p.init == spec::Init::normal && random) {
      if (is_plain(rows.storage)) {
        random->fill(device, parameter.matrix ? parameter.matrix.tensor() : parameter.vector, scale * p.init_std);
      } else {
        random->fill(device, parameter.matrix, data, scale * p.init_std);
      }
    }
    if (p.init == spec::Init::ones) {
      const std::vector<float> ones(static_cast<size_t>(p.elements()), 1.0F);
      device.copy_from_host(data, ones.data(), ones.size() * sizeof(float));
    }
    weights.parameters.push_back(parameter);
  }
  weights.owners.push_back(arena);
  return weights;
}

checkpoint::WeightStorage random_weight_storage(const std::string& word, DType activation) {
  const std::optional<checkpoint::WeightStorage> storage = checkpoint::weight_storage(word, activation);
  if (!storage || !storage->matrices) {
    throw_hint(ErrorKind::usage, "auto, bf16, fp16, fp32, int8, int4 or fp8",
               "--weights '{}' is not known for random weights", word);
  }
  return *storage;
}

data::PackedSequence random_sequence(const spec::ModelSpec& model, int64_t length, int64_t document, uint64_t number) {
  RandomStream random(11, number);
  data::PackedSequence sequence;
  for (int64_t t = 0; t < length; ++t) {
    sequence.ids.push_back(static_cast<int32_t>(random.below(static_cast<uint64_t>(model.vocab))));
    if (t % document == 0) sequence.offsets.push_back(static_cast<int32_t>(t));
  }
  sequence.offsets.push_back(static_cast<int32_t>(length));
  sequence.sample_ids.assign(sequence.offsets.size() - 1, static_cast<int64_t>(number));
  for (int64_t t = 0; t < length; ++t) {
    const bool last = t + 1 == length || (t + 1) % document == 0;
    sequence.targets.push_back(last ? -1 : sequence.ids[static_cast<size_t>(t) + 1]);
    sequence.loss_tokens += last ? 0 : 1;
  }
  return sequence;
}

std::shared_ptr<const infer::HostAdapter> random_adapter(const spec::ModelSpec& model, const spec::LoraSpec& lora,
                                                         DType type, int64_t number) {
  const std::vector<spec::LoraParam> layers = spec::lora_parameters(model, lora);
  const StorageType storage = checkpoint::storage_of(type);
  int64_t elements = 0;
  for (const spec::LoraParam& p : layers) elements += p.rank * (p.in + p.out);
  const auto memory = std::make_shared<std::vector<std::byte>>(static_cast<size_t>(elements) * size_of(type));
  RandomStream random(7, number);
  std::vector<float> values;
  size_t used = 0;
  const auto fill = [&](Shape shape) {
    values.resize(static_cast<size_t>(shape.elements()));
    for (float& value : values) value = 0.04F * (random.uniform() - 0.5F);
    Tensor tensor{memory->data() + used, type, shape, nullptr};
    used += tensor.bytes();
    checkpoint::encode_row(storage, values.data(), shape.elements(), tensor.data);
    return tensor;
  };
  nn::Adapter weights;
  weights.factor = static_cast<float>(lora.factor());
  weights.layers.resize(spec::parameters(model).size());
  for (const spec::LoraParam& p : layers) {
    weights.layers[p.base].a = fill(Shape{p.rank, p.in});
    weights.layers[p.base].b = fill(Shape{p.out, p.rank});
  }
  return std::make_shared<const infer::HostAdapter>(fmt::format("random-{}", number), std::move(weights), memory);
}

spec::ModelSpec reduced(const spec::ModelSpec& model) {
  spec::ModelSpec small = model;
  small.vocab = std::min<int64_t>(model.vocab, 256);
  // One layer of each kind, or two where all are alike.
  small.layers.clear();
  for (const spec::LayerSpec& layer : model.layers) {
    if (std::find(small.layers.begin(), small.layers.end(), layer) == small.layers.end()) small.layers.push_back(layer);
  }
  if (small.layers.size() == 1 && model.layers.size() > 1) small.layers.push_back(small.layers.front());
  for (spec::LayerSpec& layer : small.layers) {
    spec::Attention& attention = layer.attention;
    const int64_t group = attention.heads / attention.kv_heads;
    attention.kv_heads = std::min<int64_t>(attention.kv_heads, group > 1 ? 1 : 2);
    attention.heads = attention.kv_heads * std::min<int64_t>(group, 2);
    attention.window = std::min<int64_t>(attention.window, 5);
    small.hidden = attention.query_width();
    spec::dense_of(layer.mlp).features = std::min<int64_t>(spec::dense_of(layer.mlp).features, 96);
    if (auto* experts = std::get_if<spec::Experts>(&layer.mlp)) {
      experts->count = std::min<int64_t>(experts->count, 4);
      experts->per_token = std::min(experts->per_token, std::max<int64_t>(1, experts->count - 1));
    }
  }
  small.context = std::min<int64_t>(model.context, 2 * check_tokens);
  small.initializer_range = 0.2;  // so that logits, and attention's contribution to them, are of order 1
  return small;
}

spec::ModelSpec bench_spec(const std::string& model) {
  return checkpoint::read_model_spec(checkpoint::open_model(model));
}

TrainBench::TrainBench(runtime::Runtime& runtime, const spec::ModelSpec& model, const TrainJob& job)
    : runtime_(runtime), model_(model), job_(job) {
  constexpr uint64_t seed = 1;
  Device& device = *runtime.device;
  const checkpoint::WeightStorage storage = random_weight_storage(job.weights, job.step.activation);
  weights_ = random_model(device, model, storage, seed, job.scale);
  computed_ = models::make_model(model, weights_, device);
  if (job.lora) {
    optimizer_state_.emplace(device, model, *job.lora, job.step.activation, job.types, seed);
  } else {
    optimizer_state_.emplace(device, model, weights_, job.step.activation, job.types);
  }
  step_.emplace(device, runtime.registry, *runtime.threads, *computed_, *optimizer_state_, job.step,
                storage.decoded(job.step.activation));
  if (job.lora) {
    optimizer_state_->refresh_weights(step_->context());
  } else {
    optimizer_state_->init_masters(step_->context());
  }
}

train::StepResult TrainBench::run(int64_t sequences) {
  std::vector<data::PackedSequence> batch;
  std::vector<int64_t> samples;
  for (int64_t s = 0; s < sequences; ++s) {
    samples.push_back(steps_ * sequences + s);
    batch.push_back(
        random_sequence(model_, job_.step.sequence_length, job_.document, static_cast<uint64_t>(samples.back())));
  }
  const train::StepResult result = step_->run(++steps_, 1e-3, batch, samples);
  uint16_t one = 0;  // synchronises with the update
  runtime_.device->copy_to_host(&one, optimizer_state_->tensors().front().master.data, sizeof one);
  return result;
}

bool SmallCheck::agrees() const {
  for (size_t i = 0; i < cpu.size(); ++i) {
    if (!(std::abs(device[i] - cpu[i]) <= allowed * std::max(least, std::abs(cpu[i])))) return false;
  }
  return !cpu.empty() && cpu.size() == device.size();
}

SmallCheck check_small(runtime::Runtime& runtime, const spec::ModelSpec& model, const TrainJob& job) {
  const spec::ModelSpec small = reduced(model);
  TrainJob small_job = job;
  small_job.step.sequence_length = std::min(check_tokens, small.context);
  small_job.step.micro = 1;
  small_job.document = (small_job.step.sequence_length + 1) / 2;
  if (small_job.lora) small_job.lora->rank = std::min<int64_t>(small_job.lora->rank, 4);
  const auto curve = [&](runtime::Runtime& on) {
    TrainBench bench(on, small, small_job);
    std::vector<double> values;
    for (int64_t s = 0; s < check_steps; ++s) {
      const train::StepResult result = bench.run(2);
      values.push_back(result.loss);
      values.push_back(result.grad_norm);
    }
    return values;
  };
  runtime::Runtime cpu = runtime::open_runtime("cpu", 1);
  SmallCheck check;
  check.cpu = curve(cpu);
  check.device = curve(runtime);
  check.allowed = tolerance(job.step.activation, small.vocab);
  return check;
}

}  // namespace ingot::bench
