#include "tests/parity/golden.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "backend/cpu/cpu_device.h"
#include "backend/gpu/ops.h"
#include "backend/gpu/sim/sim_device.h"
#include "base/half.h"
#include "base/philox.h"
#include "checkpoint/adapter.h"
#include "checkpoint/row_codec.h"
#include "tensor/tolerance.h"
#include "tests/locations.h"
#include "tests/sanitized.h"

namespace ingot::parity {

namespace {

std::filesystem::path golden_root() {
  const char* fresh = std::getenv("INGOT_GOLDEN");
  return fresh ? fresh : test_data;
}

}  // namespace

std::vector<std::string> golden_models() {
  std::vector<std::string> models;
  for (const auto& family : std::filesystem::directory_iterator(golden_root())) {
    if (!family.is_directory()) continue;
    for (const auto& model : std::filesystem::directory_iterator(family)) {
      if (!std::filesystem::exists(model.path() / "adamw.safetensors")) continue;
      models.push_back((family.path().filename() / model.path().filename()).string());
    }
  }
  std::ranges::sort(models);
  return models;
}

std::filesystem::path golden_folder(const std::string& model) { return golden_root() / model; }

std::vector<Subject> golden_subjects() {
  std::vector<Subject> all;
  for (const std::string& model : golden_models()) {
    all.push_back({model, "cpu"});
    if (sanitized) continue;
    for (const char* device : {"sim32", "sim64"}) all.push_back({model, device});
  }
  return all;
}

std::string name_of(const testing::TestParamInfo<Subject>& info) {
  std::string name = info.param.device + "_" + info.param.model;
  std::ranges::replace(name, '/', '_');
  return name;
}

std::vector<float> floats(const formats::SafetensorsFile& file, const std::string& name) {
  const formats::TensorEntry& entry = file.at(name);
  if (entry.dtype == "F32") {
    std::vector<float> values(entry.bytes.size() / 4);
    std::memcpy(values.data(), entry.bytes.data(), entry.bytes.size());
    return values;
  }
  std::vector<float> values(entry.bytes.size() / 2);
  for (size_t i = 0; i < values.size(); ++i) {
    uint16_t bits = 0;
    std::memcpy(&bits, entry.bytes.data() + 2 * i, 2);
    values[i] = bf16_to_float(bits);
  }
  return values;
}

std::vector<int32_t> integers(const formats::SafetensorsFile& file, const std::string& name) {
  const formats::TensorEntry& entry = file.at(name);
  std::vector<int32_t> values(entry.bytes.size() / 4);
  std::memcpy(values.data(), entry.bytes.data(), entry.bytes.size());
  return values;
}

std::vector<float> floats(Device& device, const Tensor& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.elements()));
  if (tensor.dtype == DType::f32) {
    device.copy_to_host(values.data(), tensor.data, tensor.bytes());
    return values;
  }
  std::vector<uint16_t> bits(values.size());
  device.copy_to_host(bits.data(), tensor.data, tensor.bytes());
  std::ranges::transform(bits, values.begin(), bf16_to_float);
  return values;
}

std::vector<float> of_parameter(const formats::SafetensorsFile& file, const spec::ModelSpec& model,
                                const std::string& kind, const std::string& name) {
  std::vector<float> stored = floats(file, kind + "." + name);
  for (const spec::ParamSpec& p : spec::parameters(model)) {
    if (p.name != name || !p.transposed) continue;
    std::vector<float> values(stored.size());
    const auto rows = static_cast<size_t>(p.shape[0]);
    const auto columns = static_cast<size_t>(p.shape[1]);
    for (size_t i = 0; i < stored.size(); ++i) values[i] = stored[i % columns * rows + i / columns];
    return values;
  }
  return stored;
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return INFINITY;
  double squares = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    squares += difference * difference;
  }
  return std::sqrt(squares);
}

double norm(const std::vector<float>& a) { return distance(a, std::vector<float>(a.size())); }

double relative_error(const std::vector<float>& found, const std::vector<float>& expected) {
  return distance(found, expected) / norm(expected);
}

Machine::Machine(int count, const std::string& name) : threads(count) {
  if (name == "cpu") {
    device = cpu::make_device();
    cpu::register_ops(registry);
  } else {
    device = gpu::sim::make_device(name == "sim32" ? 32 : 64);
    gpu::register_ops(registry, DeviceKind::sim);
  }
}

data::PackedSequence golden_sequence(const std::string& model) {
  const formats::SafetensorsFile state(golden_folder(model) / "state.safetensors");
  data::PackedSequence sequence;
  sequence.ids = integers(state, "ids");
  sequence.targets = integers(state, "targets");
  for (int32_t& target : sequence.targets) {
    target = target < 0 ? -1 : target;
    sequence.loss_tokens += target >= 0;
  }
  sequence.offsets = integers(state, "cu_seqlens");
  return sequence;
}

std::vector<data::PackedSequence> different_sequences(const std::string& model, int count) {
  std::vector<data::PackedSequence> sequences(static_cast<size_t>(count), golden_sequence(model));
  const int32_t ids = std::ranges::max(sequences.front().ids) + 1;
  for (size_t i = 0; i < sequences.size(); ++i) {
    for (int32_t& id : sequences[i].ids) id = (id + 7 * static_cast<int32_t>(i)) % ids;
  }
  return sequences;
}

std::unique_ptr<Bench> make_bench(Machine& machine, const std::string& model, const BenchSettings& settings) {
  auto bench = std::make_unique<Bench>();
  const bool adapted = settings.lora || settings.new_adapter;
  const checkpoint::LoadOptions options{.device = *machine.device,
                                        .storage = {checkpoint::storage_of(settings.activation)},
                                        .writable = !adapted,
                                        .pool = &machine.threads};
  bench->loaded = checkpoint::load_model(checkpoint::open_model(golden_folder(model).string()), options);
  bench->model = models::make_model(bench->loaded.spec, bench->loaded.weights, *machine.device);
  if (settings.new_adapter) {
    bench->optimizer_state.emplace(*machine.device, bench->loaded.spec, *settings.new_adapter, settings.activation,
                                   settings.types, 1);
    int64_t index = 0;
    for (train::TrainedParameter& t : bench->optimizer_state->tensors()) {
      RandomStream random(7, index++);
      std::vector<float> values(static_cast<size_t>(t.shape.elements()));
      for (float& value : values) value = static_cast<float>(random.normal()) * 0.1F;
      machine.device->copy_from_host(t.master.data, values.data(), t.master.bytes());
    }
  } else if (settings.lora) {
    const std::filesystem::path adapter = golden_folder(model) / "lora";
    const spec::LoraSpec lora = checkpoint::read_adapter(adapter, bench->loaded.spec).lora;
    bench->optimizer_state.emplace(*machine.device, bench->loaded.spec, lora, settings.activation, settings.types, 1);
    const formats::SafetensorsFile file(adapter / "adapter_model.safetensors");
    for (train::TrainedParameter& t : bench->optimizer_state->tensors()) {
      const std::vector<float> values = floats(file, "base_model.model." + t.name);
      machine.device->copy_from_host(t.master.data, values.data(), t.master.bytes());
    }
  } else {
    train::ShardSpec share{.rank = settings.ranks.rank(), .ranks = settings.ranks.size(), .zero = settings.zero};
    share.cp = share.ranks;
    share.cp_comm_type = settings.cp_comm_type;
    if (settings.types.offload) bench->host = cpu::make_device();
    bench->optimizer_state.emplace(*machine.device, bench->loaded.spec, bench->loaded.weights, settings.activation,
                                   settings.types, share, nullptr, bench->host.get());
  }
  train::StepSettings step;
  step.activation = settings.activation;
  step.recompute = settings.recompute;
  step.sequence_length = static_cast<int64_t>(golden_sequence(model).ids.size());
  step.micro = settings.micro;
  if (settings.types.fixed_point_sums) step.accumulation_units = 8;
  step.optimizer.weight_decay = 0.1;
  const std::string name = !settings.steps.empty() ? settings.steps
                           : adapted               ? "lora.safetensors"
                                                   : "adamw.safetensors";
  const formats::SafetensorsFile steps(golden_folder(model) / name);
  const auto setting = [&](const char* key) { return static_cast<double>(floats(steps, key).at(0)); };
  step.optimizer.clip_grad_norm = setting("clip_grad_norm");
  if (!settings.steps.empty()) {
    step.optimizer.momentum = setting("momentum");
    step.optimizer.beta1 = setting("beta1");
    step.optimizer.beta2 = setting("beta2");
  }
  bench->step.emplace(*machine.device, machine.registry, machine.threads, *bench->model, *bench->optimizer_state, step,
                      false, comm::make_grid(settings.ranks, {.cp = settings.ranks.size()}));
  if (adapted) {
    bench->optimizer_state->refresh_weights(bench->step->context());
  } else {
    bench->optimizer_state->init_masters(bench->step->context());
  }
  return bench;
}

void expect_ten_steps(Machine& machine, Bench& bench, const std::string& model,
                      const formats::SafetensorsFile& expected, const std::string& prefix, double lr) {
  const double bound = tolerance(DType::f32, chain_length(bench.loaded.spec, 32));
  const data::PackedSequence sequence = golden_sequence(model);
  const std::vector<float> losses = floats(expected, "losses");
  const std::vector<float> losses_error = floats(expected, "losses.error");
  const std::vector<float> norms = floats(expected, "grad_norms");
  const std::vector<float> norms_error = floats(expected, "grad_norms.error");
  std::vector<std::vector<float>> starts;
  for (const train::TrainedParameter& t : bench.optimizer_state->tensors()) {
    starts.push_back(floats(*machine.device, t.master));
  }
  const int64_t sample = 0;
  for (size_t s = 0; s < losses.size(); ++s) {
    const train::StepResult result = bench.step->run(static_cast<int64_t>(s) + 1, lr, {&sequence, 1}, {&sample, 1});
    EXPECT_NEAR(result.loss, losses[s], bound * losses[s] + error_multiple * losses_error[s]) << "step " << s + 1;
    EXPECT_NEAR(result.grad_norm, norms[s], bound * norms[s] + error_multiple * norms_error[s]) << "step " << s + 1;
  }
  for (size_t i = 0; i < starts.size(); ++i) {
    const train::TrainedParameter& t = bench.optimizer_state->tensors()[i];
    const std::vector<float> exact = of_parameter(expected, bench.loaded.spec, "weight", prefix + t.name);
    const double error = floats(expected, "error." + prefix + t.name).at(0);
    const double update = distance(exact, starts[i]);
    EXPECT_LT(distance(floats(*machine.device, t.master), exact), bound * update + error_multiple * error) << t.name;
  }
}

namespace {

// The logits of the golden sequence.
std::vector<float> logits(Machine& machine, ops::Context& context, const models::Model& computed,
                          const spec::ModelSpec& spec, const nn::Adapter* adapter, const std::string& model,
                          DType activation) {
  const data::PackedSequence sequence = golden_sequence(model);
  const std::vector<int32_t> positions = data::positions(sequence);
  const int64_t tokens = static_cast<int64_t>(sequence.ids.size());
  const auto on_device = [&](const std::vector<int32_t>& values) {
    Buffer buffer(*machine.device, values.size() * sizeof(int32_t));
    machine.device->copy_from_host(buffer.data(), values.data(), buffer.bytes());
    return buffer;
  };
  const Buffer ids = on_device(sequence.ids);
  const Buffer places = on_device(positions);
  const Buffer offsets = on_device(sequence.offsets);
  const nn::TokenBatch batch{ids.view(DType::i32, {tokens}), places.view(DType::i32, {tokens}),
                             offsets.view(DType::i32, {std::ssize(sequence.offsets)})};
  nn::Pass pass{context, batch, activation, {}};
  if (adapter != nullptr) pass.adapters.push_back({0, tokens, adapter});
  const Buffer normed(*machine.device, static_cast<size_t>(tokens * spec.hidden) * size_of(activation));
  const Buffer scores(*machine.device, static_cast<size_t>(tokens * spec.vocab) * 4);
  const Tensor hidden = normed.view(activation, Shape{tokens, spec.hidden});
  const Tensor out = scores.view(DType::f32, Shape{tokens, spec.vocab});
  computed.forward(pass, hidden);
  computed.logits(pass, out, hidden);
  return floats(*machine.device, out);
}

}  // namespace

Served serve(Machine& machine, const std::string& model, DType type) {
  const checkpoint::LoadOptions options{
      .device = *machine.device, .storage = {checkpoint::storage_of(type)}, .pool = &machine.threads};
  Served served{checkpoint::load_model(checkpoint::open_model(golden_folder(model).string()), options), nullptr};
  served.model = models::make_model(served.loaded.spec, served.loaded.weights, *machine.device);
  return served;
}

std::vector<float> logits(Machine& machine, const Served& served, const std::string& model, DType activation) {
  models::PassShape shape;
  shape.tokens = shape.longest = shape.logit_rows = std::ssize(golden_sequence(model).ids);
  shape.activation = activation;
  shape.threads = machine.threads.threads();
  Arena scratch(*machine.device, models::pass_bytes(served.loaded.spec, shape).forward, "scratch");
  ops::Context context{*machine.device, machine.registry, scratch, &machine.threads};
  return logits(machine, context, *served.model, served.loaded.spec, nullptr, model, activation);
}

std::vector<float> logits(Machine& machine, Bench& bench, const std::string& model, DType activation) {
  return logits(machine, bench.step->context(), *bench.model, bench.loaded.spec, bench.optimizer_state->adapter(),
                model, activation);
}

int64_t chain_length(const spec::ModelSpec& model, int64_t tokens) {
  const int64_t longest = std::max({spec::longest_row(model), model.vocab, tokens});
  return longest * 7 * model.num_layers();  // seven products a block, forward or backward
}

}  // namespace ingot::parity
